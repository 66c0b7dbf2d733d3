import { useEffect, useRef } from "preact/hooks";

/** Put the focus into an element when it appears, so that what is typed next goes there. */
export function useFocus(): preact.RefObject<HTMLInputElement | null> {
  const element = useRef<HTMLInputElement>(null);
  useEffect(() => element.current?.focus(), []);
  return element;
}

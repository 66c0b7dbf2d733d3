import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

/** The width of an element now, so that text in a drawing keeps its size. */
export function useWidth(): [preact.RefObject<SVGSVGElement | null>, number] {
  const drawing = useRef<SVGSVGElement>(null);
  const [width, setWidth] = useState(560);
  const measure = () => setWidth(Math.round(Math.max(260, Math.min(880, drawing.current?.parentElement?.clientWidth || 560))));
  useLayoutEffect(measure, []);
  useEffect(() => {
    const observer = new ResizeObserver(measure);
    if (drawing.current?.parentElement) observer.observe(drawing.current.parentElement);
    return () => observer.disconnect();
  }, []);
  return [drawing, width];
}

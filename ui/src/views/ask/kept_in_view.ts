// The part of a conversation that stays in view while answers arrive and grow, until the person looks elsewhere.

import { useEffect, useRef } from "preact/hooks";

/** What the frame of the page and the composer take from the height of a phone. */
const FRAME = 290;

interface KeptInView {
  /** The element that holds the turns. */
  box: preact.RefObject<HTMLDivElement | null>;
  /** Keep the turn of a run in view, or the end. */
  keep: (what: string) => void;
  /** Scroll to what is kept in view. */
  place: () => void;
}

export function useKeptInView(phone: boolean): KeptInView {
  const box = useRef<HTMLDivElement>(null);
  const kept = useRef<string | null>("end");
  const place = () => {
    if (kept.current === null || !box.current) return;
    const turns = [...box.current.querySelectorAll<HTMLElement>(".turn")];
    const target = kept.current === "end" ? turns.at(-1) : turns.find((turn) => turn.dataset.run === kept.current);
    if (!target) return;
    const room = phone ? innerHeight - FRAME : (box.current.parentElement?.clientHeight ?? 0);
    // A turn that is too long begins at the top: its question and answer come first.
    target.scrollIntoView({ block: target.offsetHeight > room || kept.current !== "end" ? "start" : "end", behavior: "instant" });
  };
  const latest = useRef(place);
  latest.current = place;
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const release = () => {
      kept.current = null;
    };
    const observer = new ResizeObserver(() => latest.current());
    observer.observe(element);
    const events = ["wheel", "touchmove", "pointerdown", "keydown"];
    const talk = element.parentElement as HTMLElement;
    for (const name of events) talk.addEventListener(name, release, { passive: true });
    return () => {
      observer.disconnect();
      for (const name of events) talk.removeEventListener(name, release);
    };
  }, [box.current]);
  const keep = (what: string) => {
    kept.current = what;
    requestAnimationFrame(() => latest.current());
  };
  return { box, keep, place };
}

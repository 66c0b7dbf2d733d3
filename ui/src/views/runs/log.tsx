// The raw log of a run: every event as it was recorded, only the visible ones in the document.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { type Slot, Slots } from "../../parts/slots";
import type { Entry } from "../../types";

const ROW = 26;
const HEIGHT = 620;
const OVERSCAN = 8;
/** Characters of an event in its line. */
const GIST = 200;
/** Scrolling that pauses this long has ended. */
const STILL_MS = 250;

/** The entries of a run's log as they are read; null reads nothing. It need not wait for the run itself. */
export function useEntries(runId: string | null): Entry[] {
  const [entries, setEntries] = useState<Entry[]>([]);
  useEffect(() => {
    setEntries([]);
    if (runId === null) return;
    const abort = new AbortController();
    const read: Entry[] = [];
    let frame = 0;
    void readEntries(runId, abort.signal, (entry) => {
      read.push(entry);
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        setEntries([...read]);
      });
    }).catch(() => undefined);
    return () => {
      abort.abort();
      cancelAnimationFrame(frame);
    };
  }, [runId]);
  return entries;
}

interface LineSlot extends Slot {
  button: HTMLButtonElement;
  no: Text;
  when: Text;
  type: Text;
  gist: Text;
  entry: Entry | null;
  here: boolean;
}

export function Log({ entries }: { entries: Entry[] }) {
  const [open, setOpen] = useState<number | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const list = useRef<HTMLOListElement>(null);
  const lines = useRef<Slots<LineSlot> | null>(null);
  const start = entries[0] ? Date.parse(entries[0].at) : 0;
  const height = Math.min(HEIGHT, entries.length * ROW + 2);
  const draw = () => {
    if (!box.current || !list.current) return;
    const first = Math.max(0, Math.floor(box.current.scrollTop / ROW) - OVERSCAN);
    lines.current ??= new Slots(list.current, makeLine);
    lines.current.show(first, Math.min(entries.length, first + Math.ceil(HEIGHT / ROW) + 2 * OVERSCAN), (slot, index) => {
      fillLine(slot, index, entries[index] as Entry, start, open === index);
    });
  };
  const latest = useRef(draw);
  latest.current = draw;
  useLayoutEffect(draw);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    let frame = 0;
    let still = 0;
    const later = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        latest.current();
      });
      clearTimeout(still);
      still = window.setTimeout(() => lines.current?.order(), STILL_MS);
    };
    element.addEventListener("scroll", later, { passive: true });
    return () => {
      element.removeEventListener("scroll", later);
      cancelAnimationFrame(frame);
      clearTimeout(still);
    };
  }, []);
  const click = (event: MouseEvent) => {
    const found = event.target instanceof Element ? event.target.closest("button") : null;
    if (found) setOpen(Number(found.dataset.index));
  };
  const chosen = open === null ? null : entries[open];
  return (
    <>
      <p class="note">{entries.length.toLocaleString("en")} events</p>
      <div class="log" ref={box} tabIndex={0} role="region" aria-label="Log" style={{ height: `${height}px` }}>
        <ol ref={list} onClick={click} style={{ height: `${entries.length * ROW}px` }} />
      </div>
      {chosen && <pre tabIndex={0}><code>{JSON.stringify(chosen, null, 2)}</code></pre>}
    </>
  );
}

/** A line is one run of monospaced text, padded: boxes for its columns would cost a layout each, in every frame. */
function makeLine(): LineSlot {
  const element = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  const [no, when, type, gist] = [new Text(), new Text(), new Text(), new Text()];
  const [time, name] = [document.createElement("span"), document.createElement("b")];
  time.className = "when";
  time.append(when);
  name.append(type);
  button.append(no, time, name, gist);
  element.append(button);
  return { element, index: -1, button, no, when, type, gist, entry: null, here: false };
}

function fillLine(slot: LineSlot, index: number, entry: Entry, start: number, here: boolean): void {
  if (slot.index !== index) {
    slot.element.style.transform = `translateY(${index * ROW}px)`;
    slot.button.dataset.index = String(index);
  }
  if (slot.here !== here) slot.element.className = here ? "here" : "";
  slot.here = here;
  if (slot.entry === entry) return;
  slot.entry = entry;
  slot.no.data = `${String(entry.seq).padStart(6)}  `;
  slot.when.data = `${((Date.parse(entry.at) - start) / 1000).toFixed(3).padStart(9)}  `;
  slot.type.data = `${entry.type.padEnd(17)} `;
  slot.gist.data = gist(entry);
}

const gists = new WeakMap<Entry, string>();

function gist(entry: Entry): string {
  const known = gists.get(entry);
  if (known !== undefined) return known;
  const { run_id: _run, seq: _seq, at: _at, type: _type, ...rest } = entry;
  const made = JSON.stringify(rest).slice(0, GIST);
  gists.set(entry, made);
  return made;
}

/** Read the whole log as a stream; a live run's log goes on until it ends. */
async function readEntries(runId: string, abort: AbortSignal, onEntry: (entry: Entry) => void): Promise<void> {
  const response = await fetch(`/api/runs/${runId}/events`, { headers: { Accept: "text/event-stream" }, signal: abort });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (reader) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line.startsWith("data: ")) onEntry(JSON.parse(line.slice(6)) as Entry);
  }
}

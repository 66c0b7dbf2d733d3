// The raw log of a run: every event as it was recorded, only the visible ones in the document.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Entry } from "../../types";

const ROW = 26;

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

export function Log({ entries }: { entries: Entry[] }) {
  const [open, setOpen] = useState<number | null>(null);
  const [top, setTop] = useState(0);
  const box = useRef<HTMLDivElement>(null);
  const height = 620;
  const first = Math.max(0, Math.floor(top / ROW) - 10);
  const shown = entries.slice(first, first + Math.ceil(height / ROW) + 20);
  const start = entries[0] ? Date.parse(entries[0].at) : 0;
  const chosen = open === null ? null : entries[open];
  return (
    <>
      <p class="note">{entries.length.toLocaleString("en")} events</p>
      <div class="log" ref={box} tabIndex={0} role="region" aria-label="Log" style={{ height: `${Math.min(height, entries.length * ROW + 2)}px` }}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}>
        <ol style={{ height: `${entries.length * ROW}px` }}>
          {shown.map((entry, offset) => (
            <li key={entry.seq} style={{ transform: `translateY(${(first + offset) * ROW}px)` }} class={open === first + offset ? "here" : ""}>
              <button type="button" onClick={() => setOpen(first + offset)}>
                <span class="n">{entry.seq}</span>
                <span class="n">{((Date.parse(entry.at) - start) / 1000).toFixed(3)}</span>
                <b>{entry.type}</b>
                <span class="clip">{gist(entry)}</span>
              </button>
            </li>
          ))}
        </ol>
      </div>
      {chosen && <pre tabIndex={0}><code>{JSON.stringify(chosen, null, 2)}</code></pre>}
    </>
  );
}

function gist(entry: Entry): string {
  const { run_id: _run, seq: _seq, at: _at, type: _type, ...rest } = entry;
  return JSON.stringify(rest).slice(0, 300);
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

// Follow the log of a run: the entries so far, then each one as it happens, through disconnects and restarts.

import { online } from "../api";
import { ENDED, type Entry, type Run } from "../types";
import { Folding } from "./fold";

const TYPES = [
  "run.queued", "run.started", "run.paused", "run.resumed", "run.waiting", "run.answered", "run.requested", "guided",
  "run.finished", "run.failed", "run.cancelled", "step.started", "step.finished", "text.delta", "artifact.created",
  "replay.decided", "script.compiled", "run.judged", "note",
];

const ENDING = new Set(["run.finished", "run.failed", "run.cancelled"]);

export interface Followed {
  run: Run;
  /** The text that the model is writing now. */
  writing: string;
}

/** Call `onChange` at most once per frame until the run has ended. Returns a function that stops. */
export function followRun(runId: string, known: Run | null, onChange: (state: Followed) => void): () => void {
  const folding = new Folding(known);
  let frame = 0;
  const source = new EventSource(`/api/runs/${runId}/events?after=${folding.seq}`);
  const show = () => {
    frame = 0;
    const run = folding.run();
    onChange({ run, writing: [...folding.writing.values()].join("") });
    if (ENDED.has(run.status)) source.close();
  };
  const add = (event: MessageEvent<string>) => {
    online.value = true;
    const entry = JSON.parse(event.data) as Entry;
    if (entry.seq <= folding.seq) return; // a repeated entry after a reconnect
    folding.add(entry);
    // At once: the server ends the stream, and an open EventSource would take that for a lost connection.
    if (ENDING.has(entry.type)) source.close();
    frame ||= requestAnimationFrame(show);
  };
  for (const type of TYPES) source.addEventListener(type, add);
  source.onopen = () => {
    online.value = true;
  };
  source.onerror = () => {
    // EventSource reconnects with Last-Event-ID by itself, unless the server refused or had nothing more to send.
    if (source.readyState === EventSource.CONNECTING) online.value = false;
  };
  return () => {
    source.close();
    cancelAnimationFrame(frame);
  };
}

import type { ComponentChildren } from "preact";
import type { RunStatus } from "../types";

export type Shape = "good" | "run" | "wait" | "ask" | "bad" | "off";

/** A state: always a shape and a word. */
export function State({ shape, children }: { shape: Shape; children: ComponentChildren }) {
  return <span class={`st ${shape}`}>{children}</span>;
}

const RUN: Record<RunStatus, [Shape, string]> = {
  queued: ["wait", "queued"],
  running: ["run", "working"],
  paused: ["wait", "paused"],
  waiting: ["ask", "asks you"],
  succeeded: ["good", "done"],
  failed: ["bad", "failed"],
  cancelled: ["off", "stopped"],
};

/** The state of a run. If a question was not understood, the system did not fail. */
export function RunState({ status, code }: { status: RunStatus; code?: string | null | undefined }) {
  if (code === "not_understood") return <State shape="ask">not understood</State>;
  const [shape, word] = RUN[status];
  return <State shape={shape}>{word}</State>;
}

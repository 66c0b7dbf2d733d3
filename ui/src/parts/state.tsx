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

export function RunState({ status }: { status: RunStatus }) {
  const [shape, word] = RUN[status];
  return <State shape={shape}>{word}</State>;
}

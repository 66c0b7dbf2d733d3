// The steps of a run: one line each, which opens to its code and output.

import { useState } from "preact/hooks";
import { Code } from "../../parts/code";
import { Copy } from "../../parts/copy";
import { count, counted, duration } from "../../format";
import type { Run, Step } from "../../types";

/** The steps that are shown of a long run until somebody asks for the others. */
const [FIRST, LAST] = [20, 20];

export function Steps({ run, onEdit }: { run: Run; onEdit?: (step: Step) => void }) {
  const shown = run.steps.filter((step) => step.kind !== "model" || step.outcome !== "ok" || step.ended_at === null);
  const parents = new Set(shown.filter((step) => step.kind !== "model").map((step) => step.parent));
  const calls = shown.filter((step) => !parents.has(step.id));
  const [all, setAll] = useState(false);
  if (calls.length === 0) return null;
  const hidden = all ? 0 : Math.max(0, calls.length - FIRST - LAST);
  const line = (step: Step) => <StepLine key={step.id} step={step} onEdit={onEdit} />;
  return (
    <div class="steps">
      {calls.slice(0, hidden ? FIRST : calls.length).map(line)}
      {hidden > 0 && <div class="m"><span class="t" /><div><button type="button" class="link" onClick={() => setAll(true)}>{counted(hidden, "step")} between</button></div></div>}
      {hidden > 0 && calls.slice(-LAST).map(line)}
    </div>
  );
}

export function StepLine({ step, onEdit }: { step: Step; onEdit?: ((step: Step) => void) | undefined }) {
  const running = step.ended_at === null;
  const failed = !running && step.outcome !== "ok";
  const [open, setOpen] = useState(failed);
  const code = step.kind === "sql" || step.kind === "python";
  return (
    <div class={`m step${running ? " run" : failed ? " bad" : ""}`}>
      <span class="t">{running ? "" : duration(step.elapsed_ms ?? 0)}</span>
      <div class="body">
        <div class="sum">
          <span class="mono">{nameOf(step)}</span>
          <span class="clip">{gistOf(step)}</span>
          {running && <span class="st run">running</span>}
          <button type="button" class="link" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? "Close" : "Open"}
          </button>
        </div>
        {open && (
          <>
            <Code text={step.code || "(nothing)"} language={step.kind === "sql" ? "sql" : step.kind === "python" ? "python" : "json"} />
            {step.error && <p class="out bad-text">{step.error.detail ?? step.error.title}</p>}
            {step.shown && <pre class="out" tabIndex={0}>{step.shown}</pre>}
            <div class="after">
              <Copy text={step.code}>Copy</Copy>
              {code && onEdit && (
                <button type="button" class="link" onClick={() => onEdit(step)}>
                  Edit and run again
                </button>
              )}
            </div>
          </>
        )}
      </div>
    </div>
  );
}

function nameOf(step: Step): string {
  if (step.kind !== "tool") return step.kind;
  return step.dialect ?? (typeof step.params.tool === "string" ? step.params.tool : "tool");
}

function gistOf(step: Step): string {
  if (step.error) return step.error.title ?? step.error.detail ?? "failed";
  if (step.result) return `${step.source ?? ""} · ${counted(step.result.row_count, "row")} of ${counted(step.result.columns.length, "column")}`.replace(/^ · /, "");
  if (step.kind === "model") return step.usage.tokens_out ? `${count(step.usage.tokens_in)} tokens in, ${count(step.usage.tokens_out)} out` : "thinking";
  return step.code.split("\n").find((line) => line.trim())?.trim() ?? "";
}

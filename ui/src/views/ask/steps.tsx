// The steps of a run: one line each, which opens to its code and output.

import { useState } from "preact/hooks";
import { Code } from "../../parts/code";
import { Copy } from "../../parts/copy";
import { count, counted, duration } from "../../format";
import type { Run, Step } from "../../types";

/** The steps that are shown of a long run until somebody asks for the others. */
const [FIRST, LAST] = [20, 20];

export function Steps({ run, onEdit }: { run: Run; onEdit?: (step: Step) => void }) {
  // A turn of the model that ended the run says nothing that the outcome of the run does not say.
  const said = (step: Step) => step.error !== null && step.error?.detail === run.error?.detail;
  const shown = run.steps.filter((step) => step.kind !== "model" || step.ended_at === null || (step.outcome !== "ok" && !said(step)));
  const parents = new Set(shown.filter((step) => step.kind !== "model").map((step) => step.parent));
  const calls = shown.filter((step) => !parents.has(step.id));
  const [all, setAll] = useState(false);
  if (calls.length === 0) return null;
  const hidden = all ? 0 : Math.max(0, calls.length - FIRST - LAST);
  const line = (step: Step) => <StepLine key={step.id} step={step} onEdit={onEdit} saidBelow={said(step)} />;
  return (
    <div class="steps">
      {calls.slice(0, hidden ? FIRST : calls.length).map(line)}
      {hidden > 0 && <div class="m"><span class="t" /><div><button type="button" class="link" onClick={() => setAll(true)}>{counted(hidden, "step")} between</button></div></div>}
      {hidden > 0 && calls.slice(-LAST).map(line)}
    </div>
  );
}

interface LineProps {
  step: Step;
  onEdit?: ((step: Step) => void) | undefined;
  /** Whether the error of the step is that of the run, which is shown below. */
  saidBelow?: boolean;
}

/** What opens a step, by its kind. */
const OPENS: Partial<Record<Step["kind"], string>> = { sql: "SQL", python: "code" };

export function StepLine({ step, onEdit, saidBelow = false }: LineProps) {
  const running = step.ended_at === null;
  const failed = !running && step.outcome !== "ok";
  const [chosen, setOpen] = useState<boolean | null>(null);
  const open = chosen ?? failed;
  const opens = OPENS[step.kind];
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
            {opens ? `${open ? "Hide" : "Show"} ${opens}` : open ? "Close" : "Open"}
          </button>
        </div>
        {open && (
          <>
            <Code text={step.code || "(nothing)"} language={step.kind === "sql" ? "sql" : step.kind === "python" ? "python" : "json"} />
            {step.error && !saidBelow && <p class="out bad-text">{step.error.detail ?? step.error.title}</p>}
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

// A run on one axis of seconds: what the model, the tools, the queries and the waits took.

import { useState } from "preact/hooks";
import { count, counted, duration } from "../../format";
import type { Run, Step } from "../../types";

const WIDTH = 1000;
const MORE = 300;

export function Timeline({ run }: { run: Run }) {
  const start = Date.parse(run.created_at);
  const end = run.steps.reduce((last, step) => Math.max(last, Date.parse(step.ended_at ?? step.started_at)), Date.parse(run.ended_at ?? new Date().toISOString()));
  const span = Math.max(1, end - start);
  const x = (time: number) => ((time - start) / span) * WIDTH;
  const [shown, setShown] = useState(MORE);
  const ids = new Set(run.steps.map((step) => step.id));
  const waited = run.started_at ? Date.parse(run.started_at) - start : 0;
  return (
    <div class="waterfall">
      <p class="legend">
        <span><i class="key model" />model</span><span><i class="key tool" />tool</span><span><i class="key query" />query</span><span><i class="key wait" />wait</span>
        <span class="push">{duration(span)} in all</span>
      </p>
      <div class="fr ax"><span /><div>{[0, 1, 2, 3].map((part) => <span key={part}>{duration((span * part) / 4)}</span>)}</div></div>
      {waited > 0 && (
        <div class="fr">
          <span class="nm soft">in the queue</span>
          <svg viewBox={`0 0 ${WIDTH} 28`} preserveAspectRatio="none" aria-hidden="true"><rect class="k-wait" x={0} y={9} width={Math.max(2, x(start + waited))} height={10} /></svg>
          <span class="n">{duration(waited)}</span>
        </div>
      )}
      {run.steps.slice(0, shown).map((step) => <Lane key={step.id} step={step} x={x} nested={step.parent !== null && ids.has(step.parent)} />)}
      {run.steps.length > shown && <button type="button" onClick={() => setShown(shown + MORE)}>{counted(Math.min(MORE, run.steps.length - shown), "more step")} of {count(run.steps.length)}</button>}
    </div>
  );
}

function Lane({ step, x, nested }: { step: Step; x: (time: number) => number; nested: boolean }) {
  const from = Date.parse(step.started_at);
  const took = step.elapsed_ms ?? (step.ended_at ? Date.parse(step.ended_at) - from : Date.now() - from);
  const kind = step.kind === "sql" ? "query" : step.kind === "model" ? "model" : "tool";
  return (
    <div class="fr">
      <span class={nested ? "nm in" : "nm"}>
        <span class="mono">{step.kind}</span>
        <span class="clip soft">{step.code.split("\n", 1)[0]}</span>
      </span>
      <svg viewBox={`0 0 ${WIDTH} 28`} preserveAspectRatio="none" aria-hidden="true">
        <rect class={`k-${kind}`} x={x(from)} y={8} width={Math.max(2, x(from + took) - x(from))} height={12} />
      </svg>
      <span class="n">{step.ended_at ? duration(took) : <span class="st run">running</span>}</span>
    </div>
  );
}

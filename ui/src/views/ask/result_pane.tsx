// What an answer rests on: its results as tabs, each with chart and rows; details; and where a number comes from.

import { useState } from "preact/hooks";
import { count, duration } from "../../format";
import { Chart } from "../../parts/chart";
import { Code } from "../../parts/code";
import { type Cell, Grid } from "../../parts/grid";
import { conditionsOf, readingOf } from "../../reading";
import { link } from "../../router";
import type { Figure, ResultInfo, Run, Step } from "../../types";

interface Shown {
  id: string;
  name: string;
  info: ResultInfo;
  path: string;
  step: Step | null;
}

/** The results that an answer shows; a run without a choice of its own shows its result. */
export function resultsOf(run: Run): Shown[] {
  if (run.shown.length > 0)
    return run.shown.map(({ id, step_id, result }) => {
      const step = run.steps.find((other) => other.id === step_id) ?? null;
      return { id, name: run.shown.length > 1 ? id : "Result", info: result, path: `/runs/${run.id}/result?result=${id}`, step };
    });
  if (!run.result) return [];
  const step = run.steps.findLast((other) => other.result !== null) ?? null;
  return [{ id: "", name: "Result", info: run.result, path: `/runs/${run.id}/result`, step }];
}

interface PaneProps {
  run: Run | null;
  figure: Figure | null;
  onFigure: (figure: Figure | null) => void;
  /** The question of the result, if it is not the last one of the conversation. */
  of?: string | null;
  /** Shows the result of the last question again, if another was chosen. */
  onLatest?: (() => void) | null;
  /** Shows the result of an earlier question, if there is one and this question has none. */
  onEarlier?: (() => void) | null;
}

export function ResultPane({ run, figure, onFigure, of = null, onLatest = null, onEarlier = null }: PaneProps) {
  const [tab, setTab] = useState(0);
  const [cell, setCell] = useState<Cell | null>(null);
  if (!run) return <section class="pane" aria-label="Result"><p class="note empty">The result of an answer appears here.</p></section>;
  const results = resultsOf(run);
  const details = Math.max(1, results.length);
  const chosen = figure ? Math.max(0, results.findIndex((result) => figure.result.split(",").includes(result.id))) : Math.min(tab, details);
  const shown = results[chosen];
  return (
    <section class="pane" aria-label="Result">
      <div class="tabs" role="tablist">
        {results.map((result, index) => (
          <button type="button" role="tab" key={result.id} aria-selected={index === chosen}
            onClick={() => { setTab(index); onFigure(null); setCell(null); }}>
            {result.name}<small>{count(result.info.row_count)}</small>
          </button>
        ))}
        {results.length === 0 && <button type="button" role="tab" aria-selected={chosen === 0} onClick={() => setTab(0)}>Result</button>}
        <button type="button" role="tab" aria-selected={chosen === details} onClick={() => { setTab(details); onFigure(null); }}>
          Details
        </button>
      </div>
      {of && chosen !== details && <p class="note of"><span class="clip">of the question <i>{of}</i></span>{onLatest && <button type="button" class="link" onClick={onLatest}>Show the latest</button>}</p>}
      {figure && <FigureOrigin run={run} figure={figure} onClose={() => onFigure(null)} />}
      {cell && shown && !figure && <CellOrigin run={run} shown={shown} cell={cell} onClose={() => setCell(null)} />}
      {shown && (
        <>
          {chosen === 0 && run.chart && <Chart spec={run.chart} info={shown.info} path={shown.path} conditions={conditionsOf(readingOf(run))} />}
          <Grid key={shown.path} path={shown.path} info={shown.info} name={shown.name} onCell={setCell} sort={chosen === 0 ? chartOrder(run, shown) : []} />
        </>
      )}
      {chosen === details && <Details run={run} />}
      {!shown && chosen !== details && (
        <div class="empty">
          <p class="note">{ABSENT[run.status] ?? "The result of this question will appear here."}</p>
          {onEarlier && <button type="button" class="link foot" onClick={onEarlier}>Show the result before it</button>}
        </div>
      )}
    </section>
  );
}

/** The order of the bars above the rows, if the query itself asked for none. */
function chartOrder(run: Run, { step, info }: Shown): string[] {
  const { x, y, color } = (run.chart?.encoding ?? {}) as Record<string, { field?: string; sort?: unknown } | undefined>;
  const measure = y?.sort === "-x" ? x?.field : x?.sort === "-y" ? y?.field : undefined;
  if (!measure || color || !step || /\border\s+by\b/i.test(step.code)) return [];
  return info.columns.some((column) => column.name === measure) ? [`-${measure}`] : [];
}

/** Why a run has no result. */
const ABSENT: Partial<Record<Run["status"], string>> = {
  failed: "This question failed, so it has no result.",
  cancelled: "It was stopped before it had a result.",
  succeeded: "This answer has no table.",
};

function FigureOrigin({ run, figure, onClose }: { run: Run; figure: Figure; onClose: () => void }) {
  return (
    <Origin title={figure.text} onClose={onClose}>
      <dt>Is</dt><dd><code>{figure.expression}</code></dd>
      <dt>Exactly</dt><dd>{figure.value}</dd>
      <dt>From</dt><dd>{figure.result || "the question"}</dd>
      <RunFacts run={run} />
    </Origin>
  );
}

function CellOrigin({ run, shown, cell, onClose }: { run: Run; shown: Shown; cell: Cell; onClose: () => void }) {
  const value = cell.value === null ? "null" : typeof cell.value === "string" ? cell.value : JSON.stringify(cell.value);
  const number = shown.step ? run.steps.indexOf(shown.step) + 1 : null;
  return (
    <Origin title={value} onClose={onClose}>
      <dt>Is</dt><dd>{cell.column.name}, row {count(cell.row + 1)} as shown of {count(shown.info.row_count)}</dd>
      {shown.step && <><dt>Query</dt><dd>step {number} of the run, {duration(shown.step.elapsed_ms ?? 0)}</dd></>}
      {shown.step && shown.step.reads.length > 0 && <><dt>Reads</dt><dd>{shown.step.reads.map((read) => read.table).join(", ")}</dd></>}
      <RunFacts run={run} />
    </Origin>
  );
}

function RunFacts({ run }: { run: Run }) {
  return (
    <>
      <dt>Run</dt><dd><a class="mono" href={link("runs", run.id)}>{run.id}</a></dd>
      {run.replay?.origin && <><dt>Checked</dt><dd>replayed, {run.replay.guards} guards passed</dd></>}
    </>
  );
}

function Origin({ title, children, onClose }: { title: string; children: preact.ComponentChildren; onClose: () => void }) {
  return (
    <div class="origin" role="dialog" aria-label="Where this value comes from">
      <div class="hd">
        <h3 class="clip">{title}</h3>
        <button type="button" class="link" onClick={onClose}>Close</button>
      </div>
      <dl>{children}</dl>
    </div>
  );
}

function Details({ run }: { run: Run }) {
  const { steps: _steps, ...facts } = run;
  return (
    <>
      {run.code && <><h3>Code</h3><Code text={run.code} language={run.kind === "python" ? "python" : "sql"} /></>}
      <h3>The run as JSON</h3>
      <Code text={JSON.stringify(facts, null, 2)} language="json" />
    </>
  );
}

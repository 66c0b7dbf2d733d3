// One run in several views of the same events.

import { useEffect, useState } from "preact/hooks";
import { call, may, text } from "../../api";
import { useRun } from "../../events/use_run";
import { count, duration, moment } from "../../format";
import { Chart } from "../../parts/chart";
import { Code } from "../../parts/code";
import { Copy, CopyRequest } from "../../parts/copy";
import { Failure, useLoaded, Waiting } from "../../parts/loading";
import { RunState } from "../../parts/state";
import { conditionsOf, readingOf } from "../../reading";
import { go, link } from "../../router";
import { ENDED, type Figure, type Replay, type Run } from "../../types";
import { ResultPane, resultsOf } from "../ask/result_pane";
import { Turn } from "../ask/turn";
import { Compare } from "./compare";
import { Log, useEntries } from "./log";
import { ProofReport, ReplayButton, useReplay } from "./proof";
import { Timeline } from "./timeline";

const VIEWS = { answer: "Answer", timeline: "Timeline", log: "Log", result: "Result", script: "Script", compare: "Compare" } as const;
type View = keyof typeof VIEWS;

export function RunDetail({ runId, view, other }: { runId: string; view: string | null; other: string | null }) {
  const live = useRun(runId);
  useEffect(() => scrollTo(0, 0), []); // on a phone the list was scrolled
  const [figure, setFigure] = useState<Figure | null>(null);
  const shown: View = view && view in VIEWS ? (view as View) : "answer";
  const entries = useEntries(shown === "log" ? runId : null);
  const run = live.run;
  const replaying = useReplay(run);
  if (live.error) return <main class="detail" id="content"><h1 class="away">Run</h1><Failure error={live.error} again={live.reload} /></main>;
  if (!run) return <main class="detail" id="content"><h1 class="away">Run</h1><Waiting for="Reading the run" /></main>;
  const first = resultsOf(run)[0];
  return (
    <main class="detail" id="content" tabIndex={-1}>
      <div class="facts"><RunState status={run.status} code={run.error?.code} /><span class="mono">{run.id}</span><span>{moment(run.created_at)}</span></div>
      <h1 class="run-title clip-2">{run.text}</h1>
      <Facts run={run} />
      <div class="hd views">
        <nav class="seg" aria-label="Views of this run">
          {(Object.keys(VIEWS) as View[]).map((name) => (
            <a key={name} href={link("runs", run.id, { view: name })} aria-current={shown === name ? "page" : undefined}>{VIEWS[name]}</a>
          ))}
        </nav>
        <span class="acts">{computes(run) && <ReplayButton replaying={replaying} />}<Acts run={run} /></span>
      </div>
      <ProofReport run={run} replaying={replaying} />
      {shown === "answer" && (
        <Turn question={run.text} at={run.created_at} live={live} onFresh={(again) => void askAgain(again)} onAsk={(text) => go(link("ask", { q: text, dataset: run.source }))}
          onEdit={(step) => go(link("ask", { q: `${step.kind === "python" ? "PYTHON" : "SQL"}: ${step.code}`, dataset: step.source }))} onBranch={() => run.thread_id && go(link("ask", run.thread_id))}
          onFigure={(_run, found) => { setFigure(found); go(link("runs", run.id, { view: "result" })); }}>
          {run.chart && first && <Chart spec={run.chart} info={first.info} path={first.path} conditions={conditionsOf(readingOf(run))} />}
        </Turn>
      )}
      {shown === "timeline" && <Timeline run={run} />}
      {shown === "log" && <Log entries={entries} />}
      {shown === "result" && <><h2 class="away">Result</h2><ResultPane run={run} figure={figure} onFigure={setFigure} /></>}
      {shown === "script" && <Script run={run} />}
      {shown === "compare" && <Compare run={run} other={other} />}
    </main>
  );
}

/** Whether the run computed something that can be executed again. */
function computes(run: Run): boolean {
  return run.status === "succeeded" && run.steps.some((step) => (step.kind === "sql" || step.kind === "python") && step.outcome === "ok");
}

async function askAgain(run: Run): Promise<void> {
  const body = { kind: run.kind, text: run.text, fresh: true, ...(run.source ? { dataset: run.source } : {}) };
  const made = await call<{ id: string }>("POST", "/runs", body);
  go(link("runs", made.id));
}

/** How a run got its answer. */
const ANSWERED: Record<Replay["level"], string> = {
  replay: "replayed",
  repair: "replayed after a repair",
  example: "answered anew, with an earlier script as an example",
  scratch: "answered anew",
  shadow: "answered anew and compared with a replay",
};

function Facts({ run }: { run: Run }) {
  const took = run.ended_at ? Date.parse(run.ended_at) - Date.parse(run.created_at) : null;
  const tokens = run.usage.tokens_in + run.usage.tokens_out;
  return (
    <div class="facts">
      <span>kind <b>{run.kind}</b></span>
      {run.source && <span>data <b>{run.source}</b></span>}
      {run.model && (run.model === "offline" ? <span><b>rules</b>, no model</span> : <span>model <b>{run.model}</b></span>)}
      {took !== null && <span>took <b>{duration(took)}</b></span>}
      <span><b>{count(tokens)}</b> tokens</span>
      {run.usage.cost_usd > 0 && <span>cost <b>${run.usage.cost_usd.toFixed(4)}</b></span>}
      {run.replay && <span><b>{ANSWERED[run.replay.level]}</b>{run.replay.tokens_saved ? `, saved ${count(run.replay.tokens_saved)} tokens` : ""}{run.replay.reason ? `: ${run.replay.reason}` : ""}</span>}
      {run.thread_id && <a href={link("ask", run.thread_id, { turn: run.id })}>its conversation</a>}
    </div>
  );
}

function Acts({ run }: { run: Run }) {
  if (!ENDED.has(run.status))
    return may("analyst") ? <button type="button" class="halt" onClick={() => void call("POST", `/runs/${run.id}/cancel`)}>Stop</button> : null;
  return (
    <>
      <a class="button" href={`/api/runs/${run.id}/export`} download>Export</a>
      <CopyRequest method="GET" path={`/runs/${run.id}`} />
    </>
  );
}

function Script({ run }: { run: Run }) {
  const loaded = useLoaded(() => text(`/runs/${run.id}/script`), [run.id, run.script]);
  if (loaded.error) return <Failure error={loaded.error} />;
  if (loaded.data === null) return <Waiting for="Writing the script" />;
  return (
    <>
      <p class="lead">The run as a script that needs no model.</p>
      <div class="after"><Copy text={loaded.data}>Copy</Copy></div>
      <Code text={loaded.data} language="python" />
    </>
  );
}

// Runs: a list with filters, and one run beside it.

import { useEffect, useState } from "preact/hooks";
import { call } from "../../api";
import { counted, duration, when } from "../../format";
import { Failure, useLoaded, Waiting } from "../../parts/loading";
import { RunState } from "../../parts/state";
import { go, link } from "../../router";
import type { Listing, RunSummary } from "../../types";
import { RunDetail } from "./run";

const STATUSES = ["", "running", "waiting", "succeeded", "failed", "cancelled"];
/** States as the list writes them. */
const WORDS: Record<string, string> = { running: "working", waiting: "asks you", succeeded: "done", failed: "failed", cancelled: "stopped" };
const KINDS = ["", "ask", "sql", "python", "plan", "catalog"];

export function RunsView({ runId, query }: { runId: string | null; query: URLSearchParams }) {
  const [text, setText] = useState(query.get("text") ?? "");
  const status = query.get("status") ?? "";
  const kind = query.get("kind") ?? "";
  const wanted = query.get("text") ?? "";
  const asked = new URLSearchParams({ limit: "100" });
  for (const [name, value] of Object.entries({ text: wanted, status, kind })) if (value) asked.set(name, value);
  const loaded = useLoaded((abort) => call<Listing<RunSummary>>("GET", `/runs?${asked}`, undefined, abort), [asked.toString()]);
  const [more, setMore] = useState<RunSummary[]>([]);
  const [next, setNext] = useState<string | null>(null);
  useEffect(() => {
    setMore([]);
    setNext(loaded.data?.next ?? null);
  }, [loaded.data]);
  useEffect(() => {
    const timer = setTimeout(() => text !== wanted && go(link("runs", ...(runId ? [runId] : []), { text, status, kind }), true), 200);
    return () => clearTimeout(timer);
  }, [text]);
  const filter = (name: string, value: string) => go(link("runs", ...(runId ? [runId] : []), { text, status, kind, [name]: value }), true);
  const items = [...(loaded.data?.items ?? []), ...more];
  const load = async () => {
    const page = await call<Listing<RunSummary>>("GET", `/runs?${asked}&cursor=${encodeURIComponent(next ?? "")}`);
    setMore([...more, ...page.items]);
    setNext(page.next);
  };
  const groups: RunSummary[][] = [];
  for (const run of items) {
    const last = groups.at(-1)?.[0];
    if (last && last.text === run.text && last.kind === run.kind && last.source === run.source) groups.at(-1)?.push(run);
    else groups.push([run]);
  }
  const row = (run: RunSummary) => <RunRow key={run.id} run={run} here={run.id === runId} address={link("runs", run.id, { text: wanted, status, kind })} />;
  return (
    <div class={`runs ${runId ? "opened-run" : ""}`}>
      <section class="list" aria-label="Runs">
        {!runId && <h1 class="away">Runs</h1>}
        <div class="acts filters">
          <input type="search" aria-label="Words of the question" placeholder="Search" value={text} onInput={(event) => setText(event.currentTarget.value)} />
          <select aria-label="State" value={status} onChange={(event) => filter("status", event.currentTarget.value)}>
            {STATUSES.map((name) => <option key={name} value={name}>{name ? WORDS[name] : "any state"}</option>)}
          </select>
          <select aria-label="Kind" value={kind} onChange={(event) => filter("kind", event.currentTarget.value)}>
            {KINDS.map((name) => <option key={name} value={name}>{name || "any kind"}</option>)}
          </select>
        </div>
        {loaded.error && <Failure error={loaded.error} again={loaded.reload} />}
        {!loaded.data && !loaded.error && <Waiting for="Reading the runs" />}
        {loaded.data && items.length === 0 && (
          <p class="note">{wanted || status || kind ? "Nothing matches these filters." : "Runs will be listed here: each question, query and cell is one."}</p>
        )}
        <ol class="rows">
          {groups.map((group) => <Repeated key={group.at(-1)?.id} runs={group} opened={group.some((run) => run.id === runId)} row={row} />)}
        </ol>
        {next && <button type="button" onClick={() => void load()}>More</button>}
      </section>
      {runId ? <RunDetail key={runId} runId={runId} view={query.get("view")} other={query.get("with")} /> : <main class="detail" id="content" tabIndex={-1}><p class="note empty">Choose a run to see what it did.</p></main>}
    </div>
  );
}

/** The same question several times in a row, such as that of an agent: the newest, and the others on request. */
function Repeated({ runs, opened, row }: { runs: RunSummary[]; opened: boolean; row: (run: RunSummary) => preact.ComponentChildren }) {
  const [chosen, setOpen] = useState<boolean | null>(null);
  const [newest, ...others] = runs as [RunSummary, ...RunSummary[]];
  const open = chosen ?? opened;
  return (
    <>
      {row(newest)}
      {open && others.map(row)}
      {others.length > 0 && (
        <li class="again"><button type="button" class="link" aria-expanded={open} onClick={() => setOpen(!open)}>{open ? "Show only the newest" : `and ${counted(others.length, "time")} before, since ${when(others.at(-1)?.created_at ?? "")}`}</button></li>
      )}
    </>
  );
}

function RunRow({ run, here, address }: { run: RunSummary; here: boolean; address: string }) {
  return (
    <li class={here ? "here" : ""}>
      <a href={address} aria-current={here ? "page" : undefined}>
        <span class="clip-2">{run.text}</span>
        <small class="ln">
          <RunState status={run.status} code={run.error_code} />
          <span>{run.kind}</span>
          {run.elapsed_ms !== null && <span>{duration(run.elapsed_ms)}</span>}
          {run.row_count !== null && <span>{counted(run.row_count, "row")}</span>}
          <span class="push">{when(run.created_at)}</span>
        </small>
      </a>
    </li>
  );
}

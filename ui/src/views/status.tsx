// The parts of an installation as its operator sees them: work that waits, processes, storage and how long records stay.

import { Fragment } from "preact";
import { call } from "../api";
import { bytes, count, counted, duration, moment } from "../format";
import { Failure, useLoaded, Waiting } from "../parts/loading";
import { State } from "../parts/state";
import { link } from "../router";

interface Process {
  id: string;
  role: "server" | "worker" | "observer" | "learner";
  host: string;
  pid: number;
  version: string;
  address: string;
  started_at: string;
  /** `hung`: it is there, but has not said for a while that it works. */
  state: "alive" | "hung" | "gone";
  alive: boolean;
}

interface Status {
  problems: string[];
  notes: string[];
  processes: Process[];
  queue: { ready: number; delayed: number; running: number; failed_today: number; oldest_s: number; agents: Record<string, number> } | null;
  /** Runs that have not ended, by status. */
  runs: Record<string, number>;
  storage: Record<string, { bytes: number; limit: number }>;
  store_bytes: number;
  disks: { path: string; free_bytes: number; total_bytes: number }[];
  engines: Record<string, number>;
  sessions: Record<string, number>;
  errors: { what: string; error: string; at: string }[];
  /** Days that each kind of record is kept; 0 means for ever. */
  retention: Record<string, number>;
}

const KEPT: Record<string, string> = {
  runs: "runs and their results",
  results: "results and files of runs",
  threads: "conversations",
  actions: "actions of agents",
  events: "events of agents",
  steps: "steps of agents",
  audit: "the audit log",
  catalogs: "catalogs",
};

export function StatusSections() {
  const loaded = useLoaded((abort) => call<Status>("GET", "/status", undefined, abort), []);
  const status = loaded.data;
  if (loaded.error?.status === 403) return <p class="note sect">{loaded.error.message} {loaded.error.hint}</p>;
  if (loaded.error) return <Failure error={loaded.error} again={loaded.reload} />;
  if (!status) return <Waiting for="Looking at queue, workers and storage" />;
  return (
    <>
      {status.problems.length > 0 && <ul class="finds sect" aria-label="Problems">{status.problems.map((problem) => <li key={problem}><span class="sign hi">◆</span><span>{problem}</span><span /></li>)}</ul>}
      {status.notes.map((note) => <p class="note" key={note}>{note}</p>)}
      <div class="two">
        <Work status={status} />
        <Processes processes={status.processes} />
        <Storage status={status} />
        <Retention days={status.retention} />
      </div>
      {status.errors.length > 0 && (
        <section class="sect">
          <h2>What failed last</h2>
          <table class="failures">
            <tbody>{status.errors.map((error) => (
              <tr key={`${error.what}${error.at}`}><td class="soft">{moment(error.at)}</td><td><What text={error.what} /></td><td>{error.error}</td></tr>
            ))}</tbody>
          </table>
        </section>
      )}
    </>
  );
}

function Work({ status: { queue, runs, sessions, engines } }: { status: Status }) {
  const open = Object.entries(runs).filter(([, amount]) => amount > 0);
  const agents = Object.entries(queue?.agents ?? {}).filter(([, amount]) => amount > 0);
  const list = (pairs: [string, number][]) => pairs.map(([name, amount]) => `${count(amount)} ${name}`).join(", ");
  const some = (all: Record<string, number>) => list(Object.entries(all).filter(([, amount]) => amount > 0)) || "none";
  return (
    <section class="sect">
      <h2>Queue and work</h2>
      <dl class="told-list">
        {queue && <><dt>Actions of agents</dt><dd>{count(queue.ready)} ready, {count(queue.running)} running, {count(queue.delayed)} for later{queue.failed_today ? `, ${count(queue.failed_today)} failed today` : ""}</dd></>}
        {queue && queue.ready > 0 && <><dt>Waits longest</dt><dd>{duration(queue.oldest_s * 1000)}</dd></>}
        <dt>Agents</dt><dd>{agents.length ? list(agents) : "none"}</dd>
        <dt>Runs at work</dt><dd>{open.length ? <a href={link("runs")}>{list(open)}</a> : "none"}</dd>
        <dt>Python sessions</dt><dd>{some(sessions)}</dd>
        <dt>Query engines</dt><dd>{some(engines)}</dd>
      </dl>
    </section>
  );
}

function Processes({ processes }: { processes: Process[] }) {
  return (
    <section class="sect">
      <div class="hd"><h2>Processes</h2><small>{count(processes.filter((process) => process.alive).length)} of {count(processes.length)} alive</small></div>
      <div class="scroll" tabIndex={0} role="region" aria-label="Processes">
        <table>
          <thead><tr><th>process</th><th>state</th><th>host</th><th class="n">pid</th><th>since</th></tr></thead>
          <tbody>{processes.map((process) => (
            <tr key={process.id}>
              <th>{process.role}{process.address && <small class="mono"> {process.address}</small>}</th>
              <td><State shape={process.alive ? "good" : "bad"}>{process.state}</State></td>
              <td>{process.host}</td><td class="n">{process.pid}</td><td class="soft">{moment(process.started_at)}</td>
            </tr>
          ))}</tbody>
        </table>
      </div>
      <p class="note">Servers and workers run agents. <code>etude worker</code> adds another, here or on another machine.</p>
    </section>
  );
}

function Storage({ status: { storage, store_bytes, disks } }: { status: Status }) {
  return (
    <section class="sect">
      <h2>Storage</h2>
      <div class="meters">
        {Object.entries(storage).map(([tenant, use]) => <Meter key={tenant} name={`Storage of ${tenant}`} used={use.bytes} of={use.limit} />)}
        <Meter name="Records" used={store_bytes} of={0} />
        {disks.map((disk) => <Meter key={disk.path} name="Disk" path={disk.path} used={disk.total_bytes - disk.free_bytes} of={disk.total_bytes} />)}
      </div>
    </section>
  );
}

/** Value of limit, then the bar, then per cent. */
function Meter({ name, path, used, of }: { name: string; path?: string; used: number; of: number }) {
  const share = of > 0 ? used / of : 0;
  return (
    <>
      <span>{name}{path && <small class="mono clip" title={path}> {path}</small>}</span>
      <span class="n">{bytes(used)}{of > 0 ? ` of ${bytes(of)}` : ""}</span>
      {of > 0 ? (
        <svg viewBox="0 0 1000 8" preserveAspectRatio="none" aria-hidden="true"><rect class="m-all" width={1000} height={8} /><rect class={share > 0.9 ? "m-full" : "m-used"} width={Math.max(2, share * 1000)} height={8} /></svg>
      ) : <span class="note">no limit</span>}
      <span class="n soft">{of > 0 ? `${Math.round(share * 100)}%` : ""}</span>
    </>
  );
}

function Retention({ days }: { days: Record<string, number> }) {
  const groups = new Map<number, string[]>();
  for (const [kind, amount] of Object.entries(days)) groups.set(amount, [...(groups.get(amount) ?? []), KEPT[kind] ?? kind]);
  const sorted = [...groups].sort(([one], [other]) => (one || Number.POSITIVE_INFINITY) - (other || Number.POSITIVE_INFINITY));
  return (
    <section class="sect">
      <h2>Retention</h2>
      <dl class="told-list">{sorted.map(([amount, kinds]) => <Fragment key={amount}><dt>{amount ? `After ${counted(amount, "day")}` : "For ever"}</dt><dd>{amount ? "deleted: " : "kept: "}{kinds.join(", ")}</dd></Fragment>)}</dl>
      <p class="note">The operator changes this with the settings <code>retention.*</code>; <code>etude prune --dry-run</code> says what would go.</p>
    </section>
  );
}

/** Runs are links. */
function What({ text }: { text: string }) {
  const run = /run_\w+/.exec(text)?.[0];
  return run ? <a class="mono" href={link("runs", run)}>{run}</a> : <>{text}</>;
}

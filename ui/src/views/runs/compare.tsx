// Two runs side by side: the cause of what differs first, then only what differs.

import { call } from "../../api";
import { count, duration, moment } from "../../format";
import { CopyRequest } from "../../parts/copy";
import { Failure, useLoaded, Waiting } from "../../parts/loading";
import { go, link } from "../../router";
import type { Listing, Run, RunSummary } from "../../types";

export interface Moved {
  columns: string[];
  lost: string[][];
  added: string[][];
  lost_count: number;
  added_count: number;
  renamed: string;
  note: string;
}

interface Difference {
  first: string;
  second: string;
  cause: "none" | "question" | "source" | "settings" | "code" | "data" | "engine";
  detail: string;
  also: string[];
  same_result: boolean;
  moved: Moved | null;
}

const VERDICTS: Record<Difference["cause"], string> = {
  none: "Nothing differs.",
  question: "Another question was asked.",
  source: "Other data was asked.",
  settings: "The settings changed.",
  code: "The code changed.",
  data: "The data changed, the code did not.",
  engine: "The engine changed, the code and the data did not.",
};

export function Compare({ run, other }: { run: Run; other: string | null }) {
  const candidates = useLoaded((abort) => findCandidates(run, abort), [run.id]);
  const chosen = other ?? candidates.data?.[0]?.id ?? null;
  if (candidates.error) return <Failure error={candidates.error} again={candidates.reload} />;
  if (!candidates.data) return <Waiting for="Looking for runs to compare with" />;
  return (
    <>
      <div class="acts">
        <label for="other">Compared with</label>
        <select id="other" value={chosen ?? ""} onChange={(event) => go(link("runs", run.id, { view: "compare", with: event.currentTarget.value }), true)}>
          {other && !candidates.data.some((one) => one.id === other) && <option value={other}>{other}</option>}
          {candidates.data.map((one) => <option key={one.id} value={one.id}>{`${moment(one.created_at)} · ${one.text.slice(0, 70)}`}</option>)}
        </select>
        {chosen && <a href={link("runs", chosen)}>Open it</a>}
      </div>
      {chosen ? <Compared key={`${run.id}${chosen}`} run={run} other={chosen} /> : <p class="note empty">There is no other run to compare with yet. Ask the question again, and both can be compared here.</p>}
    </>
  );
}

/** Runs of the same kind, those with the same text first. */
async function findCandidates(run: Run, abort: AbortSignal): Promise<RunSummary[]> {
  const found = await call<Listing<RunSummary>>("GET", `/runs?limit=100&kind=${run.kind}`, undefined, abort);
  const words = run.text.trim().toLowerCase();
  const others = found.items.filter((one) => one.id !== run.id && one.status === "succeeded");
  const same = others.filter((one) => one.id === run.replay?.origin || one.text.trim().toLowerCase() === words);
  return [...same, ...others.filter((one) => !same.includes(one))].slice(0, 40);
}

function Compared({ run, other }: { run: Run; other: string }) {
  const path = `/runs/${other}/diff/${run.id}`;
  const found = useLoaded((abort) => call<Difference>("GET", path, undefined, abort), [run.id, other]);
  const before = useLoaded((abort) => call<Run>("GET", `/runs/${other}`, undefined, abort), [other]);
  if (found.error) return <Failure error={found.error} again={found.reload} />;
  if (!found.data || !before.data) return <Waiting for="Comparing" />;
  const { cause, detail, also, same_result: same, moved } = found.data;
  const [was, now] = [before.data, run];
  const facts: [string, string, string][] = [
    ["steps", count(was.steps.length), count(now.steps.length)],
    ["rows", was.result ? count(was.result.row_count) : "none", now.result ? count(now.result.row_count) : "none"],
    ["tokens", count(was.usage.tokens_in + was.usage.tokens_out), count(now.usage.tokens_in + now.usage.tokens_out)],
    ["time", took(was), took(now)],
    ["answer", was.answer ?? "", now.answer ?? ""],
  ];
  return (
    <>
      <div class={cause === "none" || same ? "cause same" : "cause"}>
        <span class="lbl">{same ? "same result" : "cause"}</span>
        <div><b>{VERDICTS[cause]}</b><span>{detail}</span>{also.map((text) => <p key={text}>{text}</p>)}</div>
      </div>
      <div class="scroll" tabIndex={0} role="region" aria-label="What differs">
        <table>
          <thead><tr><th><span class="away">what</span></th><th>{moment(was.created_at)}</th><th>{moment(now.created_at)}</th></tr></thead>
          <tbody>{facts.map(([name, one, two]) => one === two
            ? <tr key={name} class="soft"><th>{name}</th><td colSpan={2}>{name === "answer" ? "same words" : `same: ${one}`}</td></tr>
            : <tr key={name}><th>{name}</th><td class="was">{one}</td><td class="now"><b>{two}</b></td></tr>)}</tbody>
        </table>
      </div>
      {moved && <MovedRows moved={moved} />}
      {same && <p class="note">Both results hold the same rows.</p>}
      <div class="after"><CopyRequest method="GET" path={path} /></div>
    </>
  );
}

function took(run: Run): string {
  return run.ended_at ? duration(Date.parse(run.ended_at) - Date.parse(run.created_at)) : "not ended";
}

export function MovedRows({ moved }: { moved: Moved }) {
  if (moved.renamed) return <p class="note">{moved.renamed}</p>;
  return (
    <>
      <h3 class="sect">{count(moved.lost_count)} rows are gone, {count(moved.added_count)} are new</h3>
      <div class="scroll" tabIndex={0} role="region" aria-label="Rows that moved">
        <table>
          <thead><tr><th><span class="away">change</span></th>{moved.columns.map((name) => <th key={name} class="mono">{name}</th>)}</tr></thead>
          <tbody>
            {moved.lost.map((row, index) => <tr key={`l${index}`}><td class="was">before</td>{row.map((value, at) => <td key={at} class="was">{value}</td>)}</tr>)}
            {moved.added.map((row, index) => <tr key={`a${index}`}><td class="now">after</td>{row.map((value, at) => <td key={at} class="now">{value}</td>)}</tr>)}
          </tbody>
        </table>
      </div>
      {moved.note && <p class="note">{moved.note}</p>}
      {moved.lost_count + moved.added_count > moved.lost.length + moved.added.length && <p class="note">The first {count(moved.lost.length + moved.added.length)} rows that moved.</p>}
    </>
  );
}

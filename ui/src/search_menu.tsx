// One box for everything: views and actions by name, conversations, data, runs, and what an index holds.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { call } from "./api";
import { useLoaded } from "./parts/loading";
import { Words } from "./parts/words";
import { go, link } from "./router";
import type { Dataset, Listing, RunSummary, Thread } from "./types";

export const VIEWS = [["ask", "Ask"], ["runs", "Runs"], ["agents", "Agents"], ["catalog", "Catalog"], ["learning", "Learning"], ["system", "System"]] as const;

interface SearchHit {
  id: string;
  kind: "row" | "value" | "table" | "column" | "file" | "playbook" | "run";
  source: string;
  table: string;
  column: string;
  key: Record<string, unknown>;
  title: string;
  snippet: string;
  marks: [number, number][];
  why: { terms: string[] };
}

/** Hits that share no word with the query, only its meaning: a few, and only if nothing has the words. */
const MEANT = 3;
/** Characters of a text that are shown before its first mark. */
const BEFORE = 32;

interface Found {
  id: string;
  name: string;
  kind: string;
  address: string;
  hit?: SearchHit;
}

const FILTERS = { all: "All", data: "Data", talk: "Conversations", run: "Runs", playbook: "Playbooks" } as const;
type Filter = keyof typeof FILTERS;
/** Which kinds each filter lets through; views and actions are found without a filter only. */
const PASSES: Record<Exclude<Filter, "all">, string[]> = {
  data: ["data", "table", "column", "value", "row", "file"],
  talk: ["conversation"],
  run: ["run"],
  playbook: ["playbook"],
};

export function SearchMenu({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState("");
  const [asked, setAsked] = useState("");
  const [filter, setFilter] = useState<Filter>("all");
  const [at, setAt] = useState(0);
  const box = useRef<HTMLDialogElement>(null);
  const threads = useLoaded((abort) => call<Listing<Thread>>("GET", "/threads?limit=200", undefined, abort), []);
  const datasets = useLoaded((abort) => call<Listing<Dataset>>("GET", "/datasets", undefined, abort), []);
  const runs = useLoaded(async (abort) => (asked ? await call<Listing<RunSummary>>("GET", `/runs?limit=8&text=${encodeURIComponent(asked)}`, undefined, abort) : null), [asked]);
  const hits = useLoaded(async (abort) => (asked ? { of: asked, ...(await call<{ hits: SearchHit[]; notes: string[] }>("POST", "/search", { query: asked, k: 20 }, abort)) } : null), [asked]);
  useLayoutEffect(() => box.current?.showModal(), []);
  useEffect(() => {
    const timer = setTimeout(() => setAsked(text.trim()), 120);
    return () => clearTimeout(timer);
  }, [text]);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (name: string) => words.every((word) => name.toLowerCase().includes(word));
  const named: Found[] = [
    ...VIEWS.map(([name, word]) => ({ id: name, name: word, kind: "view", address: link(name) })),
    { id: "new-thread", name: "New thread", kind: "do", address: link("ask") },
    { id: "add-data", name: "Add data", kind: "do", address: link("start") },
    { id: "new-agent", name: "New agent", kind: "do", address: link("agents", "new") },
    ...(datasets.data?.items ?? []).map((dataset) => ({ id: dataset.id, name: dataset.id, kind: "data", address: link("catalog", dataset.id) })),
    ...(threads.data?.items ?? []).map((thread) => ({ id: thread.id, name: thread.title, kind: "conversation", address: link("ask", thread.id) })),
  ].filter((one) => matches(one.name));
  const recent = (runs.data?.items ?? []).map((run) => ({ id: run.id, name: run.text, kind: "run", address: link("runs", run.id) }));
  const known = new Set(recent.map((run) => run.id));
  const byWords = (asked ? (hits.data?.hits ?? []) : []).filter((hit) => hit.why.terms.length > 0);
  const byMeaning = (asked ? (hits.data?.hits ?? []) : []).filter((hit) => hit.why.terms.length === 0).slice(0, MEANT);
  const found = (byWords.length > 0 || recent.length > 0 ? byWords : byMeaning).map(toFound).filter((one) => !(one.hit?.kind === "run" && known.has(runOf(one.hit))));
  const passes = (one: Found) => filter === "all" || PASSES[filter].includes(one.kind);
  const listed: Found[] = [...named.filter(passes).slice(0, filter === "all" ? 8 : 50), ...found.filter(passes), ...(asked ? recent : []).filter(passes)];
  // How to index rows with a command is for the operator; the documentation says it.
  const notes = (hits.data?.notes ?? []).filter((note) => !note.includes("`etude "));
  const searching = text.trim() !== asked || (asked !== "" && hits.data?.of !== asked && !hits.error);
  const choose = (one: Found | undefined) => {
    if (!one) return;
    onClose();
    go(one.address);
  };
  const key = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setAt(Math.min(at + 1, listed.length - 1));
    else if (event.key === "ArrowUp") setAt(Math.max(at - 1, 0));
    else if (event.key === "Enter") choose(listed[at]);
    else return;
    event.preventDefault();
    requestAnimationFrame(() => document.querySelector("#found .here")?.scrollIntoView({ block: "nearest" }));
  };
  return (
    <dialog class="menu" ref={box} onClose={onClose} onClick={(event) => event.target === box.current && onClose()} aria-label="Search everything">
      <input type="text" role="combobox" aria-expanded="true" aria-controls="found" aria-activedescendant={listed[at] ? `found-${at}` : undefined}
        aria-label="Search everything" placeholder="Search data, conversations, runs, playbooks and views" value={text} autoFocus
        onInput={(event) => { setText(event.currentTarget.value); setAt(0); }} onKeyDown={key} />
      <span class="seg" role="group" aria-label="Only">
        {(Object.keys(FILTERS) as Filter[]).map((name) => <button type="button" key={name} aria-pressed={filter === name} onClick={() => { setFilter(name); setAt(0); }}>{FILTERS[name]}</button>)}
      </span>
      <ul id="found" role="listbox" aria-label="Found">
        {listed.map((one, index) => (
          <li key={`${one.kind}${one.id}`} id={`found-${index}`} role="option" aria-selected={index === at} class={index === at ? "here" : ""} onClick={() => choose(one)}>
            <span><span class="clip">{one.name}</span>{one.hit && one.hit.snippet !== one.name && <small class="clip"><Marked hit={one.hit} /></small>}</span>
            <small>{one.kind}{one.hit?.source ? ` · ${one.hit.source}` : ""}</small>
          </li>
        ))}
      </ul>
      {asked && notes.map((note) => <p class="note" key={note}><Words text={note} /></p>)}
      {hits.error && <p class="note">{hits.error.message}</p>}
      {listed.length === 0 && searching && <p class="note" role="status">Searching …</p>}
      {listed.length === 0 && !searching && <p class="note" role="status">Nothing matches “{text}”{filter === "all" ? "" : ` among ${FILTERS[filter].toLowerCase()}`}.</p>}
    </dialog>
  );
}

function toFound(hit: SearchHit): Found {
  const addresses: Record<SearchHit["kind"], string> = {
    row: link("ask", { dataset: hit.source, q: `SQL: SELECT * FROM ${hit.table} WHERE ${condition(hit)}` }),
    value: link("catalog", hit.source, hit.table),
    table: link("catalog", hit.source, hit.table),
    column: link("catalog", hit.source, hit.table),
    file: link("catalog", hit.source),
    playbook: link("learning", "playbooks", hit.title),
    run: link("runs", runOf(hit)),
  };
  return { id: hit.id, name: hit.title, kind: hit.kind, address: addresses[hit.kind] ?? link("catalog", hit.source), hit };
}

function runOf(hit: SearchHit): string {
  return /run_\w+/.exec(`${hit.id} ${JSON.stringify(hit.key)}`)?.[0] ?? hit.id;
}

/** The key of a row as a condition of a query, which a person reads before it runs. */
function condition(hit: SearchHit): string {
  const quoted = (name: string) => (/^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`);
  const literal = (value: unknown) => (typeof value === "number" ? String(value) : `'${String(value).replaceAll("'", "''")}'`);
  return Object.entries(hit.key).map(([name, value]) => `${quoted(name)} = ${literal(value)}`).join(" AND ") || "true";
}

function Marked({ hit }: { hit: SearchHit }) {
  const points = Array.from(hit.snippet); // marks count characters, not UTF-16 units
  const marks = hit.marks.toSorted((one, other) => one[0] - other[0]);
  // One line is shown, so it begins shortly before the first mark.
  let at = Math.max(0, (marks[0]?.[0] ?? 0) - BEFORE);
  const parts: preact.ComponentChildren[] = at > 0 ? ["…"] : [];
  for (const [from, to] of marks) {
    if (from < at) continue;
    parts.push(points.slice(at, from).join(""), <mark key={from}>{points.slice(from, to).join("")}</mark>);
    at = to;
  }
  return <>{parts}{points.slice(at).join("")}</>;
}

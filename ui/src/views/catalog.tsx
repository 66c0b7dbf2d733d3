// The catalog: sources, tables and columns with what was measured, what changed, and descriptions that people write.

import { useState } from "preact/hooks";
import { type ApiError, call, may } from "../api";
import { count, counted, short } from "../format";
import { Failure, useLoaded, Waiting } from "../parts/loading";
import { Words } from "../parts/words";
import { link } from "../router";
import type { Dataset, Listing } from "../types";
import { Diagram } from "./diagram";
import { Drift, type StoredCatalog as Stored } from "./drift";

export interface ColumnProfile {
  name: string;
  type: string;
  comment?: string | null;
  description?: string | null;
  rows?: number | null;
  nulls?: number | null;
  distinct?: number | null;
  unique?: boolean | null;
  min?: unknown;
  max?: unknown;
  mean?: number | null;
  histogram?: { kind?: string; edges: unknown[]; counts: number[] } | null;
  top?: { value: unknown; count: number; share: number }[];
  masked?: boolean;
}

export interface TableProfile {
  name: string;
  kind?: "table" | "view";
  comment?: string | null;
  description?: string | null;
  rows?: number | null;
  columns?: ColumnProfile[];
  keys?: { columns: string[] }[];
  foreign_keys?: { columns: string[]; to_table: string; to_columns: string[]; origin: string }[];
  error?: string | null;
  notes?: string[];
}

interface Profile {
  source: string;
  kind: string;
  tables?: TableProfile[];
  notes?: string[];
}

interface Change {
  id: string;
  table: string;
  column: string | null;
  severity: "low" | "medium" | "high";
  status: string;
  text: string;
  since: string | null;
  acknowledged: { by: string; why: string } | null;
}

interface StoredCatalog extends Omit<Stored, "changes"> {
  files: string[];
  changes?: Change[];
}

export function CatalogView({ dataset, table }: { dataset: string | null; table: string | null }) {
  const datasets = useLoaded((abort) => call<Listing<Dataset>>("GET", "/datasets", undefined, abort), []);
  const chosen = dataset ?? datasets.data?.items[0]?.id ?? null;
  const profile = useLoaded(async (abort) => (chosen ? await call<Profile>("GET", `/datasets/${encodeURIComponent(chosen)}/profile`, undefined, abort) : null), [chosen]);
  const tables = profile.data?.tables ?? [];
  const opened = tables.find((known) => known.name === table) ?? null;
  return (
    <div class="lay">
      <aside class="side" aria-label="Sources and tables">
        <h3>Data</h3>
        <ol>{datasets.data?.items.map((known) => <li key={known.id} class={known.id === chosen && !table ? "here" : ""}><a href={link("catalog", known.id)}>{known.id}</a> <small>{known.kind}</small></li>)}</ol>
        {tables.length > 0 && <h3>Tables of {chosen}</h3>}
        <ol>{tables.map((known) => <li key={known.name} class={known.name === table ? "here" : ""}><a class="mono" href={link("catalog", chosen ?? "", known.name)}>{known.name}</a></li>)}</ol>
      </aside>
      <main id="content" tabIndex={-1}>
        {datasets.error && <Failure error={datasets.error} again={datasets.reload} />}
        {datasets.data?.items.length === 0 && <><h1>No data yet</h1><p class="lead">Add a source with <code>etude sources add</code>; its tables will be described here.</p></>}
        {profile.error && <Failure error={profile.error} again={profile.reload} />}
        {!profile.data && (datasets.data?.items.length ?? 1) > 0 && <h1 class="away">Catalog</h1>}
        {chosen && !profile.data && !profile.error && <Waiting for={`Measuring ${chosen}: the first time takes a while`} />}
        {chosen && profile.data && (opened
          ? <TablePage dataset={chosen} table={opened} onSaved={profile.reload} />
          : <SourcePage dataset={chosen} profile={profile.data} />)}
        {table && profile.data && !opened && <p class="note">There is no table <code>{table}</code> in {chosen}.</p>}
      </main>
    </div>
  );
}

function SourcePage({ dataset, profile }: { dataset: string; profile: Profile }) {
  const tables = profile.tables ?? [];
  const rows = tables.reduce((sum, table) => sum + (table.rows ?? 0), 0);
  const stored = useLoaded((abort) => call<Listing<StoredCatalog>>("GET", `/catalogs?dataset=${encodeURIComponent(dataset)}&limit=100`, undefined, abort), [dataset]);
  const latest = stored.data?.items[0]?.name ?? null;
  const detail = useLoaded(async (abort) => (latest ? await call<StoredCatalog>("GET", `/catalogs/${encodeURIComponent(dataset)}/latest`, undefined, abort) : null), [dataset, latest]);
  const open = (detail.data?.changes ?? []).filter((change) => change.status === "new" || change.status === "open");
  return (
    <>
      <h1>{dataset}</h1>
      <p class="lead">{counted(tables.length, "table")}, {counted(rows, "row")}. {detail.data ? (open.length ? `${counted(open.length, "change")} since the last catalog.` : "Nothing changed since the last catalog.") : "No catalog is stored yet."}</p>
      <div class="acts">
        {may("analyst") && <MakeCatalog dataset={dataset} />}
        {latest && <a class="button" target="_blank" rel="noopener" href={`/api/catalogs/${encodeURIComponent(dataset)}/${encodeURIComponent(latest)}/catalog.html`}>Open the catalog page</a>}
      </div>
      {open.length > 0 && (
        <section class="sect">
          <h2>What changed</h2>
          <ul class="finds">
            {open.map((change) => (
              <li key={change.id}>
                <span class={`sign ${change.severity.slice(0, 2)}`} title={change.severity}>●</span>
                <span><Words text={change.text} /></span>
                <a href={link("catalog", dataset, change.table)} class="mono">{change.table}</a>
              </li>
            ))}
          </ul>
        </section>
      )}
      <section class="sect">
        <h2>How tables refer to each other</h2>
        <Diagram dataset={dataset} tables={tables} />
      </section>
      <section class="sect">
        <h2>Tables</h2>
        <div class="scroll" tabIndex={0} role="region" aria-label="Tables">
          <table class="told">
            <thead><tr><th>table</th><th class="n">rows</th><th class="n">columns</th><th>description</th></tr></thead>
            <tbody>{tables.map((table) => (
              <tr key={table.name}>
                <th class="mono"><a href={link("catalog", dataset, table.name)}>{table.name}</a></th>
                <td class="n">{table.rows === null || table.rows === undefined ? "" : count(table.rows)}</td>
                <td class="n">{count(table.columns?.length ?? 0)}</td>
                <td>{table.error ?? table.description ?? table.comment ?? ""}</td>
              </tr>
            ))}</tbody>
          </table>
        </div>
      </section>
      {stored.data && stored.data.items.length > 0 && (
        <section class="sect">
          <h2>Over time</h2>
          <Drift dataset={dataset} catalogs={stored.data.items} />
        </section>
      )}
    </>
  );
}

function MakeCatalog({ dataset }: { dataset: string }) {
  const [run, setRun] = useState<string | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const make = async () => {
    try {
      setRun((await call<{ id: string }>("POST", "/catalogs", { dataset })).id);
    } catch (failed) {
      setError(failed as ApiError);
    }
  };
  if (error) return <Failure error={error} />;
  if (run) return <a class="button" href={link("runs", run)}>The catalog is being made: see the run</a>;
  return <button type="button" class="do" onClick={() => void make()}>Make a catalog</button>;
}

function TablePage({ dataset, table, onSaved }: { dataset: string; table: TableProfile; onSaved: () => void }) {
  const question = `How many ${table.name.replace(/^.*\./, "").replaceAll("_", " ")}?`;
  return (
    <>
      <h1 class="mono-title">{table.name}</h1>
      <div class="facts">
        <span><b>{table.rows === null || table.rows === undefined ? "?" : count(table.rows)}</b> rows</span>
        <span><b>{count(table.columns?.length ?? 0)}</b> columns</span>
        {table.keys?.[0] && <span>key <b class="mono">{table.keys[0].columns.join(", ")}</b></span>}
      </div>
      <Description dataset={dataset} table={table.name} column={null} text={table.description ?? ""} fallback={table.comment ?? ""} onSaved={onSaved} />
      <div class="acts"><a class="button" href={link("ask", { q: question, dataset })}>Ask about this table</a></div>
      {table.error && <p class="fail-line">{table.error}</p>}
      {table.notes?.map((note) => <p class="note" key={note}><Words text={note} /></p>)}
      {(table.foreign_keys?.length ?? 0) > 0 && (
        <section class="sect">
          <h2>Refers to</h2>
          <ul class="plain">{table.foreign_keys?.map((key) => (
            <li key={key.columns.join()}><code>{key.columns.join(", ")}</code> → <a class="mono" href={link("catalog", dataset, key.to_table)}>{key.to_table}</a> <small>{key.origin === "declared" ? "declared" : "found in the data"}</small></li>
          ))}</ul>
        </section>
      )}
      <section class="sect">
        <h2>Columns</h2>
        {table.columns?.map((column) => <ColumnCard key={column.name} dataset={dataset} table={table.name} column={column} onSaved={onSaved} />)}
      </section>
    </>
  );
}

function ColumnCard({ dataset, table, column, onSaved }: { dataset: string; table: string; column: ColumnProfile; onSaved: () => void }) {
  const rows = column.rows ?? 0;
  const nulls = column.nulls ?? 0;
  const values = column.top ?? [];
  return (
    <details class="column">
      <summary>
        <b class="mono">{column.name}</b>
        <small class="mono">{column.type.toLowerCase()}</small>
        <Shape column={column} />
        <span class="note">
          {column.unique ? "unique" : column.distinct !== null && column.distinct !== undefined ? counted(column.distinct, "value") : ""}
          {nulls && rows ? ` · ${short((nulls / rows) * 100)}% null` : ""}
        </span>
      </summary>
      <Description dataset={dataset} table={table} column={column.name} text={column.description ?? ""} fallback={column.comment ?? ""} onSaved={onSaved} />
      {column.masked && <p class="note">Values are hidden: they look personal.</p>}
      <dl>
        {column.min !== null && column.min !== undefined && <><dt>From</dt><dd>{String(column.min)}</dd><dt>To</dt><dd>{String(column.max)}</dd></>}
        {column.mean !== null && column.mean !== undefined && <><dt>Mean</dt><dd>{short(column.mean)}</dd></>}
      </dl>
      {values.length > 0 && (
        <div class="bars">
          {values.map((value) => (
            <Frequent key={String(value.value)} label={String(value.value ?? "null")} share={value.share} count={value.count} />
          ))}
        </div>
      )}
    </details>
  );
}

function Frequent({ label, share, count: times }: { label: string; share: number; count: number }) {
  return (
    <>
      <span class="clip">{label}</span>
      <svg viewBox="0 0 1000 12" preserveAspectRatio="none" aria-hidden="true"><rect class="b" width={Math.max(1, share * 1000)} height={8} y={2} /></svg>
      <span class="n">{count(times)}</span>
    </>
  );
}

/** The distribution in miniature: equal-depth bins drawn by their density. */
function Shape({ column }: { column: ColumnProfile }) {
  const histogram = column.histogram;
  const edges = histogram?.edges.map((edge) => (typeof edge === "number" ? edge : Date.parse(String(edge)))) ?? [];
  if (!histogram || histogram.kind === "values" || edges.length < 3 || edges.some(Number.isNaN) || column.unique) return <svg class="sp" aria-hidden="true" />;
  const [low, high] = [edges[0] as number, edges.at(-1) as number];
  const bins = 24;
  const counts = new Array<number>(bins).fill(0);
  histogram.counts.forEach((amount, index) => {
    const [from, to] = [edges[index] as number, edges[index + 1] as number];
    const first = Math.floor(((from - low) / (high - low || 1)) * bins);
    const last = Math.max(first, Math.ceil(((to - low) / (high - low || 1)) * bins) - 1);
    for (let bin = first; bin <= Math.min(last, bins - 1); bin += 1) counts[bin] = (counts[bin] ?? 0) + amount / (last - first + 1);
  });
  const top = Math.max(...counts, 1);
  return (
    <svg class="sp" viewBox="0 0 96 20" aria-hidden="true">
      {counts.map((amount, index) => <rect key={index} class="b" x={index * 4} width={3} y={20 - (amount / top) * 20} height={(amount / top) * 20} />)}
    </svg>
  );
}

interface DescriptionProps {
  dataset: string;
  table: string;
  column: string | null;
  text: string;
  fallback: string;
  onSaved: () => void;
}

function Description({ dataset, table, column, text, fallback, onSaved }: DescriptionProps) {
  const [editing, setEditing] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const save = async (event: SubmitEvent) => {
    event.preventDefault();
    const written = String(new FormData(event.currentTarget as HTMLFormElement).get("text"));
    const note = column ? { columns: { [column]: { description: written } } } : { description: written };
    try {
      await call("PATCH", `/datasets/${encodeURIComponent(dataset)}/annotations`, { tables: { [table]: note } });
      setEditing(false);
      onSaved();
    } catch (failed) {
      setError(failed as ApiError);
    }
  };
  if (editing)
    return (
      <form class="acts" onSubmit={save}>
        <input name="text" aria-label={`Description of ${column ?? table}`} defaultValue={text} autoFocus />
        <button type="submit" class="do">Save</button>
        <button type="button" onClick={() => setEditing(false)}>Cancel</button>
        {error && <Failure error={error} />}
      </form>
    );
  return (
    <p class="description">
      {text || fallback || <span class="soft">No description.</span>}{" "}
      {may("analyst") && <button type="button" class="link" onClick={() => setEditing(true)}>{text ? "Edit" : "Describe"}</button>}
    </p>
  );
}

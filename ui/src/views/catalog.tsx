// The catalog: sources, tables and columns with what was measured, what changed, and descriptions that people write.

import { useEffect, useState } from "preact/hooks";
import { ApiError, call, may } from "../api";
import { useRun } from "../events/use_run";
import { count, counted, fraction, short } from "../format";
import { CopyRequest } from "../parts/copy";
import { FirstRows } from "../parts/first_rows";
import { type Depths, Histogram, Sparkline } from "../parts/histogram";
import { Failure, useLoaded, Waiting } from "../parts/loading";
import { Words } from "../parts/words";
import { go, link } from "../router";
import { type Dataset, ENDED, type Listing } from "../types";
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
  histogram?: Depths | null;
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
        {datasets.data?.items.length === 0 && <><h1>No data yet</h1><p class="lead">Its tables and columns will be described here.</p>{may("analyst") && <a class="button do" href={link("start")}>Add data</a>}</>}
        {profile.error && <Failure error={profile.error} again={profile.reload} />}
        {!profile.data && (datasets.data?.items.length ?? 1) > 0 && <h1 class="away">Catalog</h1>}
        {chosen && !profile.data && !profile.error && <Waiting for={`Measuring ${chosen}: the first time takes a while`} />}
        {chosen && profile.data && (opened
          ? <TablePage dataset={chosen} table={opened} onSaved={profile.reload} />
          : <SourcePage dataset={chosen} profile={profile.data} onMade={profile.reload}
              removable={datasets.data?.items.find((known) => known.id === chosen)?.removable ?? false} />)}
        {table && profile.data && !opened && <p class="note">There is no table <code>{table}</code> in {chosen}.</p>}
      </main>
    </div>
  );
}

function SourcePage({ dataset, profile, removable, onMade }: { dataset: string; profile: Profile; removable: boolean; onMade: () => void }) {
  const tables = profile.tables ?? [];
  const rows = tables.reduce((sum, table) => sum + (table.rows ?? 0), 0);
  const stored = useLoaded((abort) => call<Listing<StoredCatalog>>("GET", `/catalogs?dataset=${encodeURIComponent(dataset)}&limit=100`, undefined, abort), [dataset]);
  const latest = stored.data?.items[0]?.name ?? null;
  const detail = useLoaded(async (abort) => (latest ? await call<StoredCatalog>("GET", `/catalogs/${encodeURIComponent(dataset)}/latest`, undefined, abort) : null), [dataset, latest]);
  const [made, setMade] = useState(false);
  const open = (detail.data?.changes ?? []).filter((change) => change.status === "new" || change.status === "open");
  const only = tables.length === 1 ? tables[0] : undefined;
  return (
    <>
      <h1>{dataset}</h1>
      <p class="lead">{counted(tables.length, "table")}, {counted(rows, "row")}. {detail.data ? verdict(open.length, stored.data?.items.length ?? 0) : latest || made ? "Reading its catalog." : stored.data ? "No catalog is stored yet." : ""}</p>
      <div class="acts">
        {may("analyst") && <MakeCatalog key={dataset} dataset={dataset} again={latest !== null} onMade={() => { setMade(true); stored.reload(); detail.reload(); onMade(); }} />}
        <a class="button" href={link("ask", { dataset })}>Ask {dataset}</a>
        {latest && <a class="button" target="_blank" rel="noopener" href={`/api/catalogs/${encodeURIComponent(dataset)}/${encodeURIComponent(latest)}/catalog.html`}>Open the catalog page</a>}
        {removable && may("analyst") && <RemoveData key={dataset} dataset={dataset} />}
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
      {only && may("analyst") && <FirstRows dataset={dataset} table={only.name} rows={only.rows} />}
      {tables.length > 1 && (
        <section class="sect">
          <h2>How tables refer to each other</h2>
          <Diagram dataset={dataset} tables={tables} />
        </section>
      )}
      {!only && <section class="sect">
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
      </section>}
      {only && <Columns dataset={dataset} table={only} onSaved={onMade} />}
      {stored.data && stored.data.items.length > 0 && (
        <section class="sect">
          <h2>Changes over time</h2>
          <Drift dataset={dataset} catalogs={stored.data.items} />
        </section>
      )}
    </>
  );
}

/** What the latest catalog says against the one before it. */
function verdict(changes: number, catalogs: number): string {
  if (changes > 0) return `${counted(changes, "change")} since the last catalog.`;
  return catalogs === 1 ? "This is its first catalog: the next one will tell what changed." : "Nothing changed since the last catalog.";
}

function MakeCatalog({ dataset, again, onMade }: { dataset: string; again: boolean; onMade: () => void }) {
  const [runId, setRunId] = useState<string | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const live = useRun(runId);
  const status = live.run?.status;
  useEffect(() => {
    if (status === "succeeded") onMade();
  }, [status]);
  const make = async () => {
    setError(null);
    try {
      setRunId((await call<{ id: string }>("POST", "/catalogs", { dataset })).id);
    } catch (failed) {
      setError(failed as ApiError);
    }
  };
  const working = runId !== null && (status === undefined || !ENDED.has(status));
  return (
    <>
      {working
        ? <span class="button" role="status"><span class="st run">Making the catalog</span></span>
        : <button type="button" class="do" onClick={() => void make()}>{again || status === "succeeded" ? "Make another catalog" : "Make a catalog"}</button>}
      {runId && <a href={link("runs", runId)}>{status === "succeeded" ? "It is made: its run" : "See the run"}</a>}
      {error && <Failure error={error} />}
      {status === "failed" && <Failure error={new ApiError(live.run?.error ?? { detail: "The catalog could not be made." }, 0)} />}
    </>
  );
}

/** Removing says what goes and what stays, and asks. */
function RemoveData({ dataset }: { dataset: string }) {
  const [asking, setAsking] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const path = `/datasets/${encodeURIComponent(dataset)}`;
  const remove = async () => {
    setError(null);
    try {
      await call("DELETE", path);
      go(link("start"));
    } catch (failed) {
      setError(failed as ApiError);
    }
  };
  return (
    <>
      <button type="button" class="halt push" aria-expanded={asking} onClick={() => setAsking(!asking)}>Remove…</button>
      {asking && (
        <div class="sure wide" role="alertdialog" aria-label={`Remove ${dataset}?`}>
          <p>The uploaded files and the connection to <b>{dataset}</b> go. Runs on it stay, with their results and answers. Nothing changes in a database that it was read from.</p>
          <span class="acts">
            <button type="button" class="halt" onClick={() => void remove()}>Remove {dataset}</button>
            <button type="button" onClick={() => setAsking(false)}>Keep it</button>
            <CopyRequest method="DELETE" path={path} />
          </span>
        </div>
      )}
      {error && <Failure error={error} />}
    </>
  );
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
      {may("analyst") && !table.error && <FirstRows dataset={dataset} table={table.name} rows={table.rows} />}
      <Columns dataset={dataset} table={table} onSaved={onSaved} />
    </>
  );
}

function Columns({ dataset, table, onSaved }: { dataset: string; table: TableProfile; onSaved: () => void }) {
  return (
    <section class="sect">
      <h2>Columns</h2>
      {table.columns?.map((column) => <ColumnCard key={column.name} dataset={dataset} table={table.name} column={column} onSaved={onSaved} />)}
    </section>
  );
}

/** True if the values only tell rows apart. Unique fractions and times are measured, so their distribution is worth a look. */
function isKey(column: ColumnProfile): boolean {
  return Boolean(column.unique) && !/double|float|real|decimal|numeric|date|time/i.test(column.type);
}

/** True if the least and the greatest value are only the first and the last in the alphabet. */
function isText(type: string): boolean {
  return /char|text|string|enum|uuid/i.test(type);
}

function ColumnCard({ dataset, table, column, onSaved }: { dataset: string; table: string; column: ColumnProfile; onSaved: () => void }) {
  const rows = column.rows ?? 0;
  const nulls = column.nulls ?? 0;
  const values = column.top ?? [];
  const more = (column.distinct ?? 0) - values.length;
  return (
    <details class="column">
      <summary>
        <b class="mono">{column.name}</b>
        <small class="mono">{column.type.toLowerCase()}</small>
        <Sparkline depths={column.histogram} plain={isKey(column)} />
        <span class="note">
          {column.unique ? "unique" : column.distinct !== null && column.distinct !== undefined ? counted(column.distinct, "value") : ""}
          {nulls && rows ? ` · ${short((nulls / rows) * 100)}% null` : ""}
        </span>
        <span class="clip said">{column.description ?? column.comment ?? ""}</span>
      </summary>
      <Description dataset={dataset} table={table} column={column.name} text={column.description ?? ""} fallback={column.comment ?? ""} onSaved={onSaved} />
      {column.masked && <p class="note">Values are hidden: they look personal.</p>}
      <dl>
        {!isText(column.type) && column.min !== null && column.min !== undefined && <><dt>From</dt><dd>{valueText(column.min)}</dd><dt>To</dt><dd>{valueText(column.max)}</dd></>}
        {column.mean !== null && column.mean !== undefined && <><dt>Mean</dt><dd>{fraction(column.mean)}</dd></>}
      </dl>
      {!isKey(column) && <Histogram depths={column.histogram} />}
      {values.length > 0 && (
        <div class="bars narrow">
          {values.map((value) => (
            <Frequent key={String(value.value)} label={valueText(value.value)} share={value.count / Math.max(1, ...values.map((other) => other.count))} count={value.count} />
          ))}
        </div>
      )}
      {values.length > 0 && more > 0 && <p class="note">{counted(more, "more value")}, each as frequent as the last one or less.</p>}
    </details>
  );
}

function valueText(value: unknown): string {
  return typeof value === "number" && !Number.isInteger(value) ? fraction(value) : String(value ?? "null");
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

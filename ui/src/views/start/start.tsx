// Start: bring data, then ask it.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, call, isTyping, may, session } from "../../api";
import { count, counted } from "../../format";
import { CopyRequest } from "../../parts/copy";
import { Failure } from "../../parts/loading";
import { Words } from "../../parts/words";
import { go, link } from "../../router";
import type { Dataset, Run } from "../../types";
import { type Added, type Adding, formOf, pastedRows, useAdding, useFileDrop } from "./add_data";
import { Questions } from "./questions";

const SHOP = "shop";

export function StartView({ datasets, onAdded }: { datasets: Dataset[]; onAdded: () => void }) {
  const adding = useAdding(() => {
    go(link("start"), true); // an etude with data shows Ask instead, but the report is here
    onAdded();
  });
  const [error, setError] = useState<ApiError | null>(null);
  const allowed = may("analyst");
  const over = useFileDrop((files) => void adding.addFiles(files), allowed);
  useEffect(() => {
    if (!allowed) return;
    const paste = (event: ClipboardEvent) => {
      if (isTyping(event)) return;
      const rows = pastedRows(event.clipboardData?.getData("text/plain") ?? "");
      if (rows) void adding.addFiles([rows]);
    };
    addEventListener("paste", paste);
    return () => removeEventListener("paste", paste);
  }, [allowed]);
  const ask = async (text: string, dataset: string) => {
    setError(null);
    try {
      go(link("ask", await askInNewThread(text, dataset)));
    } catch (failed) {
      setError(failed as ApiError);
    }
  };
  const latest = adding.added[0];
  const shop = datasets.some((known) => known.id === SHOP);
  return (
    <main id="content" class="single start" tabIndex={-1}>
      <h1>{latest ? "Your data is here." : "Bring data, then ask it."}</h1>
      {!latest && <p class="lead">Files and databases are only ever read. Every number leads back to its query, and a question that worked once can be asked again for nothing.</p>}
      {!allowed && <p class="line-note">Your key may read, not add data. Ask an administrator for the role analyst.</p>}
      {adding.added.map((added) => <Report key={added.name} added={added} first={added === latest} onAsk={(text) => void ask(text, added.name)} />)}
      <div class="ways">
        <Drop adding={adding} over={over} allowed={allowed} />
        <Connect adding={adding} />
        <section>
          <h2>Open the shop</h2>
          <p>A coffee shop, two years of orders, with the faults that real data has.</p>
          <div class="acts foot">
            {shop
              ? <a class="button" href={link("ask", { dataset: SHOP })}>Ask the shop</a>
              : <button type="button" class={latest ? "" : "do"} disabled={!allowed || adding.busy !== null} onClick={() => void adding.addShop()}>Open the shop</button>}
          </div>
        </section>
      </div>
      <p class="note busy" role="status">{adding.busy ? `${adding.busy} …` : ""}</p>
      {adding.error && <Failure error={adding.error} />}
      {error && <Failure error={error} />}
      {!latest && datasets.length > 0 && (
        <section class="sect">
          <h2>Here already</h2>
          <ul class="plain">{datasets.map((known) => <li key={known.id}><a href={link("ask", { dataset: known.id })}>{known.id}</a> <small>{known.kind}</small></li>)}</ul>
        </section>
      )}
    </main>
  );
}

function Drop({ adding, over, allowed }: { adding: Adding; over: boolean; allowed: boolean }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <section>
      <h2>Drop a file</h2>
      <p>CSV, Parquet, JSON, Excel, SQLite. Several at once become one source.</p>
      <div class={over ? "drop over" : "drop"}>
        <span><b>{over ? "Let go to add it" : "Drop files here"}</b> or{" "}
          <button type="button" disabled={!allowed || adding.busy !== null} onClick={() => input.current?.click()}>Choose files</button>
        </span>
        <small>or paste rows with <kbd>Ctrl</kbd> <kbd>V</kbd></small>
        <input ref={input} class="away" type="file" multiple aria-label="Files to add" tabIndex={-1} disabled={!allowed}
          onChange={(event) => { void adding.addFiles([...(event.currentTarget.files ?? [])]); event.currentTarget.value = ""; }} />
      </div>
    </section>
  );
}

/** A URL reaches wherever the server reaches, so only the person whose server it is may give one. */
function Connect({ adding }: { adding: Adding }) {
  const allowed = session.value?.keys === false;
  const connect = (event: SubmitEvent) => {
    event.preventDefault();
    const url = String(new FormData(event.currentTarget as HTMLFormElement).get("url")).trim();
    if (url) void adding.addUrl(url);
  };
  return (
    <section>
      <h2>Paste a URL</h2>
      <p>A database, opened read-only. Its password is never shown.</p>
      {allowed ? (
        <form onSubmit={connect}>
          <input class="mono" name="url" aria-label="Database URL" placeholder="postgresql://reader@host/db" autoComplete="off" spellcheck={false} />
          <div class="acts foot"><button type="submit" disabled={adding.busy !== null}>Connect</button><small>Postgres, MySQL, SQLite, DuckDB</small></div>
        </form>
      ) : (
        <p class="note">On a server with keys, its operator connects databases: <code>etude sources add</code>.</p>
      )}
    </section>
  );
}

/** What became of a file: its tables, what was noticed, and questions to begin with. */
function Report({ added, first, onAsk }: { added: Added; first: boolean; onAsk: (text: string) => void }) {
  const rows = added.tables.reduce((sum, table) => sum + (table.rows ?? 0), 0);
  return (
    <section class="sect added" aria-label={`${added.name} was added`}>
      <div class="hd">
        <h2>{added.name} is ready: {counted(rows, "row")}{added.tables.length > 1 ? ` in ${counted(added.tables.length, "table")}` : ""}</h2>
        <span class="acts">
          <a class="button do" href={link("ask", { dataset: added.name })}>Ask {added.name}</a>
          <a class="button" href={link("catalog", added.name)}>Look at it</a>
        </span>
      </div>
      {added.notes.map((note) => <p class="note" key={note}><Words text={note} /></p>)}
      {first && <Questions dataset={added.name} onAsk={onAsk} />}
      <div class="scroll" tabIndex={0} role="region" aria-label={`Tables of ${added.name}`}>
        <table>
          <thead><tr><th>table</th><th class="n">rows</th><th>columns</th></tr></thead>
          <tbody>{added.tables.map((table) => (
            <tr key={table.name}>
              <th class="mono">{table.name}</th>
              <td class="n">{table.rows === null ? "" : count(table.rows)}</td>
              <td>{table.columns.map((column, index) => <span key={column.name}>{index > 0 && ", "}<span class="mono">{column.name}</span> <small>{column.type.toLowerCase()}</small></span>)}</td>
            </tr>
          ))}</tbody>
        </table>
      </div>
      <div class="after"><CopyRequest method="POST" path="/datasets" body={formOf([new File([], added.name)])} /></div>
    </section>
  );
}

/** Ask in a conversation of its own, and return its id. */
export async function askInNewThread(text: string, dataset: string): Promise<string> {
  const state = await call<{ id: string }>("POST", "/runs", { kind: "ask", text, dataset });
  const run = await call<Run>("GET", `/runs/${state.id}`);
  return run.thread_id ?? "";
}

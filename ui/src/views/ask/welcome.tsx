// A new conversation: what data there is, and questions that fit it.

import { call } from "../../api";
import { count, counted } from "../../format";
import { useLoaded } from "../../parts/loading";
import { link } from "../../router";
import type { Dataset, SourceSchema } from "../../types";

export function Welcome({ datasets, dataset, onAsk }: { datasets: Dataset[]; dataset: string | null; onAsk: (text: string) => void }) {
  const schema = useLoaded(async (abort) => (dataset ? await call<SourceSchema>("GET", `/datasets/${encodeURIComponent(dataset)}/schema`, undefined, abort) : null), [dataset]);
  if (datasets.length === 0)
    return (
      <div class="welcome">
        <h1>No data yet</h1>
        <p class="lead">Tell etude where your data is, then come back: a file, a folder of files or a database. It is only ever read.</p>
        <pre tabIndex={0}><code>etude sources add shop ./shop.duckdb{"\n"}etude sources add sales 'postgresql://reader@host/db'</code></pre>
      </div>
    );
  const tables = schema.data?.tables ?? [];
  const largest = tables.toSorted((one, other) => (other.row_count ?? 0) - (one.row_count ?? 0)).slice(0, 8);
  return (
    <div class="welcome">
      <h1>Ask {dataset}</h1>
      <p class="lead">In words, SQL or Python. Every number in an answer leads back to the query it came from.</p>
      {tables.length > 0 && (
        <>
          <ul class="qs">
            {questionsFor(schema.data as SourceSchema).map((question) => (
              <li key={question}><button type="button" class="link" onClick={() => onAsk(question)}>{question}</button></li>
            ))}
          </ul>
          <table>
            <thead><tr><th>table</th><th class="n">rows</th><th class="n">columns</th><th>holds</th></tr></thead>
            <tbody>
              {largest.map((table) => (
                <tr key={table.name}>
                  <th class="mono"><a href={link("catalog", dataset ?? "", table.name)}>{table.name}</a></th>
                  <td class="n">{table.row_count === null ? "" : count(table.row_count)}</td>
                  <td class="n">{count(table.columns.length)}</td>
                  <td class="clip">{table.columns.map((column) => column.name).join(", ")}</td>
                </tr>
              ))}
            </tbody>
          </table>
          {tables.length > largest.length && <p class="note"><a href={link("catalog", dataset ?? "")}>{counted(tables.length, "table")} in all</a></p>}
        </>
      )}
    </div>
  );
}

/** Questions that the rules can answer on these tables. */
export function questionsFor(schema: SourceSchema): string[] {
  const words = (name: string) => name.replace(/^.*\./, "").replaceAll("_", " ");
  const tables = schema.tables.filter((table) => table.columns.length > 1);
  const largest = tables.toSorted((one, other) => (other.row_count ?? 0) - (one.row_count ?? 0));
  const found: string[] = [];
  if (largest[0]) found.push(`How many ${words(largest[0].name)} are there?`);
  const grouped = largest.find((table) => table.columns.some((column) => /status|type|category|country|channel|genre/i.test(column.name)));
  const column = grouped?.columns.find((other) => /status|type|category|country|channel|genre/i.test(other.name));
  if (grouped && column) found.push(`How many ${words(grouped.name)} are there per ${words(column.name)}?`);
  if (largest[1]) found.push(`How many ${words(largest[1].name)} are there?`);
  return [...new Set(found)].slice(0, 3);
}

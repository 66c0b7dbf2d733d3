// A new conversation: what data there is, and questions that fit it.

import { call, may } from "../../api";
import { count, counted } from "../../format";
import { useLoaded } from "../../parts/loading";
import { link } from "../../router";
import type { SourceSchema } from "../../types";
import { Questions } from "../start/questions";

export function Welcome({ dataset, onAsk }: { dataset: string | null; onAsk: (text: string) => void }) {
  const schema = useLoaded(async (abort) => (dataset ? await call<SourceSchema>("GET", `/datasets/${encodeURIComponent(dataset)}/schema`, undefined, abort) : null), [dataset]);
  const tables = schema.data?.source === dataset ? (schema.data?.tables ?? []) : [];
  const largest = tables.toSorted((one, other) => (other.row_count ?? 0) - (one.row_count ?? 0)).slice(0, 8);
  return (
    <div class="welcome">
      <div class="hd"><h1>Ask {dataset}</h1>{may("analyst") && <a href={link("start")}>Add data</a>}</div>
      <p class="lead">In words, SQL or Python. Every number in an answer leads back to the query it came from.</p>
      {dataset && <Questions key={dataset} dataset={dataset} onAsk={onAsk} />}
      {tables.length > 0 && (
        <>
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

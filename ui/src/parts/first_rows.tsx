// The first rows of a table, as they are in the source.

import { call } from "../api";
import { cell, count, isFloat, isNumeric, namesThings, placesOf } from "../format";
import { link } from "../router";
import type { RowPage } from "../types";
import { Failure, useLoaded, Waiting } from "./loading";

const SHOWN = 50;

export function FirstRows({ dataset, table, rows }: { dataset: string; table: string; rows: number | null | undefined }) {
  const query = `SELECT * FROM ${quoted(table)}`;
  const loaded = useLoaded(
    (abort) => call<RowPage>("POST", "/sql", { dataset, query: `${query} LIMIT ${SHOWN}`, limit: SHOWN, record: false }, abort),
    [dataset, table],
  );
  return (
    <section class="sect">
      <div class="hd">
        <h2>Rows</h2>
        <span class="note">
          {loaded.data && (typeof rows === "number" && rows <= SHOWN ? `all ${count(loaded.data.rows.length)}` : <>the first {count(loaded.data.rows.length)} · <a href={link("ask", { dataset, q: `SQL: ${query}` })}>Query them all</a></>)}
        </span>
      </div>
      {loaded.error && <Failure error={loaded.error} again={loaded.reload} />}
      {!loaded.data && !loaded.error && <Waiting for={`Reading the rows of ${table}`} />}
      {loaded.data && <Rows page={loaded.data} name={table} />}
    </section>
  );
}

function Rows({ page: { columns, rows }, name }: { page: RowPage; name: string }) {
  const places = columns.map((column, index) => (isFloat(column.type) ? placesOf(rows.map((row) => row[index])) : 0));
  const side = columns.map((column) => (isNumeric(column.type) ? "n" : ""));
  return (
    <div class="scroll first-rows" tabIndex={0} role="region" aria-label={`Rows of ${name}`}>
      <table>
        <thead><tr>{columns.map((column, index) => <th key={column.name} class={side[index]}>{column.name}<small>{column.type.toLowerCase()}</small></th>)}</tr></thead>
        <tbody>{rows.map((row, at) => (
          <tr key={at}>{columns.map((column, index) => {
            const text = cell(row[index], column.type, places[index], !namesThings(column.name));
            return <td key={column.name} class={`${side[index]} clip ${row[index] === null ? "null" : ""}`} title={text}>{text}</td>;
          })}</tr>
        ))}</tbody>
      </table>
    </div>
  );
}

/** A name of a table as SQL text; its parts, such as schema and table, are quoted one by one. */
function quoted(table: string): string {
  return table.split(".").map((part) => (/^[a-z_][a-z0-9_]*$/.test(part) ? part : `"${part.replaceAll('"', '""')}"`)).join(".");
}

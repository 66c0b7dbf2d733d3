// One diagram of a whole source: tables in columns by how far they are from the tables that others refer to.

import { link } from "../router";
import type { TableProfile } from "./catalog";

const [BOX, GAP, ROW] = [168, 56, 30];

export function Diagram({ dataset, tables }: { dataset: string; tables: TableProfile[] }) {
  const names = new Set(tables.map((table) => table.name));
  const links = tables.flatMap((table) =>
    (table.foreign_keys ?? []).filter((key) => names.has(key.to_table) && key.to_table !== table.name).map((key) => ({ from: table.name, to: key.to_table })),
  );
  if (links.length === 0) return <p class="note">No table refers to another, as far as names and values tell.</p>;
  const linked = tables.filter((table) => links.some((one) => one.from === table.name || one.to === table.name));
  const level = levels(linked.map((table) => table.name), links);
  const columns: string[][] = [];
  for (const table of linked) (columns[level.get(table.name) ?? 0] ??= []).push(table.name);
  arrange(columns, links);
  const place = new Map<string, { x: number; y: number }>();
  columns.forEach((column, at) => column.forEach((name, row) => place.set(name, { x: at * (BOX + GAP), y: row * ROW })));
  const width = columns.length * (BOX + GAP) - GAP;
  const height = Math.max(...columns.map((column) => column.length)) * ROW;
  const alone = tables.length - linked.length;
  return (
    <>
      <div class="scroll" tabIndex={0} role="region" aria-label="Diagram of the tables">
        <svg class="diagram" viewBox={`0 0 ${width} ${height}`} width={width} height={height}>
          {links.map((one, index) => {
            const [from, to] = [place.get(one.from), place.get(one.to)];
            if (!from || !to) return null;
            const [x1, y1, x2, y2] = from.x > to.x ? [from.x, from.y, to.x + BOX, to.y] : [from.x + BOX, from.y, to.x, to.y];
            const half = (x1 + x2) / 2;
            return <path key={index} class="edge" d={`M${x1} ${y1 + 13}C${half} ${y1 + 13} ${half} ${y2 + 13} ${x2} ${y2 + 13}`} />;
          })}
          {[...place].map(([name, { x, y }]) => (
            <a key={name} href={link("catalog", dataset, name)}>
              <rect class="box" x={x} y={y + 2} width={BOX} height={22} rx={3} />
              <text x={x + 8} y={y + 17}>{name.length > 22 ? `${name.slice(0, 21)}…` : name}</text>
            </a>
          ))}
        </svg>
      </div>
      {alone > 0 && <p class="note">{alone} more {alone === 1 ? "table refers" : "tables refer"} to no other.</p>}
    </>
  );
}

interface Link {
  from: string;
  to: string;
}

/** How many references lead from each table down to one that refers to nothing; cycles are cut. */
function levels(names: string[], links: Link[]): Map<string, number> {
  const found = new Map<string, number>();
  const measure = (name: string, path: Set<string>): number => {
    const known = found.get(name);
    if (known !== undefined) return known;
    if (path.has(name)) return 0;
    path.add(name);
    const next = links.filter((one) => one.from === name && !path.has(one.to));
    const level = next.length ? 1 + Math.max(...next.map((one) => measure(one.to, path))) : 0;
    path.delete(name);
    found.set(name, level);
    return level;
  };
  for (const name of names) measure(name, new Set());
  return found;
}

/** Put each table near the tables that it is linked to, a few times over. */
function arrange(columns: string[][], links: Link[]): void {
  for (let round = 0; round < 4; round += 1)
    for (const column of columns) {
      const row = new Map(columns.flatMap((other) => other.map((name, index) => [name, index / Math.max(1, other.length)] as const)));
      const wish = (name: string) => {
        const near = links.filter((one) => one.from === name || one.to === name).map((one) => row.get(one.from === name ? one.to : one.from) ?? 0);
        return near.length ? near.reduce((sum, value) => sum + value, 0) / near.length : (row.get(name) ?? 0);
      };
      column.sort((one, other) => wish(one) - wish(other));
    }
}

// One diagram of a whole source: tables in columns by how far they are from the tables that others refer to. With many
// tables, one can be chosen to see only what it is linked to; pointing at a table shows its own lines.

import { useMemo, useState } from "preact/hooks";
import { counted } from "../format";
import { go, link } from "../router";
import type { TableProfile } from "./catalog";
import { BOX, draw, linksOf } from "./diagram_layout";

const MANY = 30;

export function Diagram({ dataset, tables }: { dataset: string; tables: TableProfile[] }) {
  const [around, setAround] = useState("");
  const [pointed, setPointed] = useState<string | null>(null);
  const all = useMemo(() => linksOf(tables), [tables]);
  const links = around ? all.filter((one) => one.from === around || one.to === around) : all;
  const linked = useMemo(() => tables.map((table) => table.name).filter((name) => links.some((one) => one.from === name || one.to === name)), [tables, around]);
  const drawing = useMemo(() => draw(linked, links), [linked]);
  if (all.length === 0) return <p class="note">No table refers to another, as far as names and values tell.</p>;
  const near = new Set(pointed ? links.filter((one) => one.from === pointed || one.to === pointed).flatMap((one) => [one.from, one.to]) : []);
  const alone = tables.length - new Set(all.flatMap((one) => [one.from, one.to])).size;
  const known = tables.map((table) => table.name).filter((name) => all.some((one) => one.from === name || one.to === name));
  return (
    <>
      {known.length > MANY && (
        <p class="acts">
          <label for="around">Around</label>
          <select id="around" value={around} onChange={(event) => setAround(event.currentTarget.value)}>
            <option value="">all {known.length} tables</option>
            {known.toSorted().map((name) => <option key={name} value={name}>{name}</option>)}
          </select>
          <span class="note">Point at a table to see its own lines.</span>
        </p>
      )}
      <div class="scroll diagram-box" tabIndex={0} role="region" aria-label="Diagram of the tables">
        <svg class={pointed ? "diagram pointed" : known.length > MANY && !around ? "diagram many" : "diagram"} viewBox={`-2 0 ${drawing.width + 4} ${drawing.height}`} width={drawing.width + 4} height={drawing.height}
          onPointerLeave={() => setPointed(null)}>
          {links.map((one, index) => <path key={`${one.from} ${one.to}`} class={one.from === pointed || one.to === pointed ? "edge near" : "edge"} d={drawing.paths[index]} />)}
          {[...drawing.place].map(([name, { x, y }]) => (
            <a key={name} href={link("catalog", dataset, name)} class={near.has(name) || name === pointed ? "near" : ""} aria-label={name}
              onPointerEnter={() => setPointed(name)} onFocus={() => setPointed(name)} onBlur={() => setPointed(null)}
              onClick={(event) => { event.preventDefault(); go(link("catalog", dataset, name)); }}>
              <title>{name}</title>
              <rect class="box" x={x} y={y + 3} width={BOX} height={22} rx={3} />
              <text x={x + 8} y={y + 18}>{name.length > 21 ? `${name.slice(0, 20)}…` : name}</text>
            </a>
          ))}
        </svg>
      </div>
      {alone > 0 && <p class="note">{counted(alone, "more table")} {alone === 1 ? "refers" : "refer"} to no other.</p>}
    </>
  );
}

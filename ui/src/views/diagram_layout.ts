// Where the tables of a diagram stand: in columns by how far they are from the tables that others refer to.

export const [BOX, GAP] = [168, 64];
const ROW = 30;
/** Tables in a column before the next column of the same distance begins. */
const TALL = 24;
/** Tables up to which lines are led around them; with more, they would need more room than the tables. */
const ROUTED = 50;

interface Table {
  name: string;
  foreign_keys?: { to_table: string }[];
}

export interface Link {
  from: string;
  to: string;
}

export interface Drawing {
  place: Map<string, { x: number; y: number }>;
  /** The line of each link. */
  paths: string[];
  width: number;
  height: number;
}

export function linksOf(tables: Table[]): Link[] {
  const names = new Set(tables.map((table) => table.name));
  const found = new Map<string, Link>();
  for (const table of tables)
    for (const key of table.foreign_keys ?? [])
      if (names.has(key.to_table) && key.to_table !== table.name) found.set(`${table.name}\0${key.to_table}`, { from: table.name, to: key.to_table });
  return [...found.values()];
}

/** Place the tables: by distance from left to right, each distance in as many columns as it needs. */
export function draw(names: string[], links: Link[]): Drawing {
  const level = levels(names, links);
  const columns: string[][] = [];
  for (const name of names) (columns[level.get(name) ?? 0] ??= []).push(name);
  const via = names.length <= ROUTED ? addPoints(columns, links, level) : new Map<string, string[]>();
  arrange(columns, links.flatMap((one) => segments(one, via)));
  const place = new Map<string, { x: number; y: number }>();
  const broken = columns.flatMap((column) => split(column));
  const tallest = Math.max(0, ...broken.map((column) => column.length));
  broken.forEach((column, at) => {
    const above = ((tallest - column.length) * ROW) / 2; // short columns stand in the middle
    column.forEach((name, row) => place.set(name, { x: at * (BOX + GAP), y: above + row * ROW }));
  });
  const paths = links.map((one) => pathOf([one.from, ...(via.get(keyOf(one)) ?? []), one.to].map((name) => place.get(name) ?? { x: 0, y: 0 })));
  for (const points of via.values()) for (const point of points) place.delete(point);
  return { place, paths, width: Math.max(0, broken.length * (BOX + GAP) - GAP), height: tallest * ROW };
}

function keyOf(one: Link): string {
  return `${one.from}\0${one.to}`;
}

/** Give a link that passes columns a place of its own in each of them, so that it runs between the tables. */
function addPoints(columns: string[][], links: Link[], level: Map<string, number>): Map<string, string[]> {
  const via = new Map<string, string[]>();
  for (const one of links) {
    const [from, to] = [level.get(one.from) ?? 0, level.get(one.to) ?? 0];
    const points: string[] = [];
    for (let at = from - 1; at > to; at -= 1) {
      points.push(`${keyOf(one)}\0${at}`);
      columns[at]?.push(points.at(-1) as string);
    }
    via.set(keyOf(one), points);
  }
  return via;
}

function segments(one: Link, via: Map<string, string[]>): Link[] {
  const names = [one.from, ...(via.get(keyOf(one)) ?? []), one.to];
  return names.slice(1).map((to, index) => ({ from: names[index] as string, to }));
}

/** A line from the edge of the first box through points to the edge of the last box. */
function pathOf(stops: { x: number; y: number }[]): string {
  const [from, ...rest] = stops.map(({ x, y }) => ({ x, y: y + 14 })) as [{ x: number; y: number }, ...{ x: number; y: number }[]];
  const leftward = from.x > (rest[0]?.x ?? 0);
  let path = `M${leftward ? from.x : from.x + BOX} ${from.y}`;
  let [x, y] = [leftward ? from.x : from.x + BOX, from.y];
  rest.forEach((stop, index) => {
    const last = index === rest.length - 1;
    const near = leftward || stop.x === from.x ? stop.x + BOX : stop.x;
    const bend = near === x ? x + GAP / 2 : (x + near) / 2;
    path += `C${bend} ${y} ${bend} ${stop.y} ${near} ${stop.y}`;
    [x, y] = [near, stop.y];
    if (!last) {
      x = leftward ? stop.x : stop.x + BOX;
      path += `H${x}`;
    }
  });
  return path;
}

function split(column: string[]): string[][] {
  const parts = Math.ceil(column.length / TALL);
  const size = Math.ceil(column.length / parts);
  return Array.from({ length: parts }, (_, part) => column.slice(part * size, (part + 1) * size));
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
  const near = new Map<string, string[]>();
  for (const one of links) {
    near.set(one.from, [...(near.get(one.from) ?? []), one.to]);
    near.set(one.to, [...(near.get(one.to) ?? []), one.from]);
  }
  for (let round = 0; round < 4; round += 1)
    for (const column of columns) {
      const row = new Map(columns.flatMap((other) => other.map((name, index) => [name, index / Math.max(1, other.length)] as const)));
      const wish = new Map(column.map((name) => {
        const rows = (near.get(name) ?? []).map((other) => row.get(other) ?? 0);
        return [name, rows.length ? rows.reduce((sum, value) => sum + value, 0) / rows.length : (row.get(name) ?? 0)] as const;
      }));
      column.sort((one, other) => (wish.get(one) ?? 0) - (wish.get(other) ?? 0));
    }
}

// What a chart shows, read from a Vega-Lite specification and the rows of its result, or rows of its own.

import { isNumeric, monthOf, wholeMonths } from "../format";
import type { ChartSpec, ResultColumn } from "../types";

export type Form = "bars" | "line" | "points" | "pie";

export interface Point {
  x: unknown;
  y: number;
}

export interface Series {
  name: string;
  points: Point[];
}

export interface ChartData {
  form: Form;
  title: string;
  xName: string;
  yName: string;
  xType: "category" | "number" | "time";
  series: Series[];
  /** The categories of bars, as text, in the order in which they are drawn. */
  keys: string[];
  /** Rows that are not drawn because they have no date or no place on the axis. */
  left: number;
  /** How dates are written: as months if all of them are the first day of one. */
  dates: "day" | "month" | "year";
}

interface Channel {
  field?: string;
  type?: string;
  title?: string;
  sort?: unknown;
  aggregate?: unknown;
  bin?: unknown;
  timeUnit?: unknown;
}

const MARKS: Record<string, Form> = {
  bar: "bars", arc: "pie", line: "line", area: "line", trail: "line", point: "points", circle: "points", square: "points", tick: "points",
};
/** Parts that a pie can tell apart. */
const SLICES = 8;
const IGNORED = new Set(["tooltip", "order", "opacity", "xOffset", "yOffset", "text", "shape", "detail"]);
/** Categories with an order of their own, by the first letters of their names. */
const ORDERS = ["mon tue wed thu fri sat sun", "jan feb mar apr may jun jul aug sep oct nov dec"].map((names) => names.split(" "));

/** Return what to draw, in the form of the specification or in another one that is wanted; null if the specification
 * asks for more than bars, lines, points and pies, or if another form would say less. A pie that would mislead becomes bars. */
export function readChart(spec: ChartSpec, columns: ResultColumn[], rows: unknown[][], wanted?: Form): ChartData | null {
  const own = ownRows(spec);
  if (own) [columns, rows] = own;
  const mark = typeof spec.mark === "string" ? spec.mark : spec.mark?.type;
  const given = mark === undefined ? undefined : MARKS[mark];
  const channels = readChannels(spec, mark);
  if (!given || !channels || spec.transform) return null;
  const { across, up, color } = channels;
  const index = (name: string | undefined) => columns.findIndex((column) => column.name === plainField(name ?? ""));
  const [xAt, yAt, colorAt] = [index(across.field), index(up.field), color?.field ? index(color.field) : -1];
  if (xAt < 0 || yAt < 0 || (color?.field && colorAt < 0)) return null;
  const column = columns[xAt] as ResultColumn;
  const time = across.type === "temporal" || /^(date|timestamp)/i.test(column.type);
  const number = !time && isNumeric(column.type) && across.type !== "ordinal" && across.type !== "nominal";
  const ordered = time || number || across.type === "ordinal";
  const whole = isWhole(rows, xAt, yAt) && (colorAt < 0 || colorAt === xAt) && !NOT_ADDED.test(nameOf(up));
  if (wanted === "pie" && (!whole || (given !== "bars" && given !== "pie"))) return null;
  if (wanted && wanted !== given && wanted !== "pie" && (wanted === "bars" ? given === "points" : !ordered || given !== "line" && given !== "points" && !time && !number)) return null;
  const form = (wanted ?? given) === "pie" && !whole ? "bars" : (wanted ?? given);
  const xType = form === "bars" || form === "pie" ? "category" : time ? "time" : number ? "number" : "category";
  const series = new Map<string, Series>();
  const keys = new Set<string>();
  let left = 0;
  for (const row of rows) {
    const value = Number(row[yAt]);
    if (row[yAt] === null || Number.isNaN(value)) continue;
    if (xType !== "category" && !Number.isFinite(placeOf(row[xAt], xType))) {
      left += 1;
      continue;
    }
    const name = colorAt < 0 || colorAt === xAt ? "" : String(row[colorAt] ?? "null");
    const into = series.get(name) ?? { name, points: [] };
    into.points.push({ x: row[xAt], y: value });
    keys.add(String(row[xAt]));
    series.set(name, into);
  }
  const all = [...series.values()].filter((one) => one.points.length > 0);
  const aggregated = [across, up, color].some((channel) => channel?.aggregate || channel?.bin || channel?.timeUnit);
  if (all.length === 0 || (aggregated && !areApart(all))) return null;
  const dates = time ? wholeMonths(column.name, rows.map((row) => row[xAt])) : "day";
  if (form === "line" && xType !== "category") for (const one of all) one.points.sort((a, b) => placeOf(a.x, xType) - placeOf(b.x, xType));
  return {
    form, title: titleOf(spec, up, across, color), xName: nameOf(across), yName: nameOf(up), xType, series: inOrder(all), left, dates,
    keys: xType === "category" && form !== "line" && form !== "points" ? orderOf([...keys], all, across.sort, ordered) : [],
  };
}

/** Whether the rows are few parts of one whole: different categories with positive amounts. */
function isWhole(rows: unknown[][], xAt: number, yAt: number): boolean {
  const values = rows.map((row) => row[yAt]);
  const apart = new Set(rows.map((row) => String(row[xAt]))).size === rows.length;
  return rows.length > 1 && rows.length <= SLICES && apart && values.every((value) => value !== null && Number(value) >= 0) && values.some((value) => Number(value) > 0);
}

/** A value as a place on an axis of numbers or time. */
export function placeOf(value: unknown, type: "number" | "time"): number {
  if (value === null || value === undefined) return Number.NaN;
  return type === "time" ? Date.parse(String(value)) : Number(value);
}

/** The name of a category as it is shown. */
export function labelOf(value: unknown, data: ChartData): string {
  return value === null || value === undefined ? "null" : monthOf(String(value), data.dates);
}

function readChannels(spec: ChartSpec, mark: string | undefined): { across: Channel; up: Channel; color: Channel | undefined } | null {
  const { x, y, color, theta, ...others } = (spec.encoding ?? {}) as Record<string, Channel | undefined>;
  if (Object.keys(others).some((name) => !IGNORED.has(name))) return null;
  if (mark === "arc") return theta?.field && color?.field ? { across: { ...color, sort: "-y" }, up: theta, color: undefined } : null;
  if (!x?.field || !y?.field) return null;
  const turned = mark === "bar" && x.type === "quantitative" && y.type !== "quantitative";
  return turned ? { across: y, up: x, color } : { across: x, up: y, color };
}

/** Vega reads dots and brackets as a path, so that a name has a backslash before them. */
function plainField(field: string): string {
  return field.replace(/\\(.)/g, "$1");
}

/** The rows that a chart carries itself, because it is not one of the result beside it. */
function ownRows(spec: ChartSpec): [ResultColumn[], unknown[][]] | null {
  const values = (spec.data as { values?: unknown } | undefined)?.values;
  if (!Array.isArray(values)) return null;
  const rows = values.filter((row): row is Record<string, unknown> => typeof row === "object" && row !== null);
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const columns = names.map((name) => ({ name, type: rows.every((row) => row[name] === null || typeof row[name] === "number") ? "double" : "varchar" }));
  return [columns, rows.map((row) => names.map((name) => row[name] ?? null))];
}

function areApart(series: Series[]): boolean {
  return series.every((one) => new Set(one.points.map((point) => String(point.x))).size === one.points.length);
}

/** Rows without a value of the category come last. */
function inOrder(series: Series[]): Series[] {
  return [...series.filter((one) => one.name !== "null"), ...series.filter((one) => one.name === "null")];
}

/** Categories in the order of the specification: by value, in that of the rows, or in an order of their own. */
function orderOf(keys: string[], series: Series[], sort: unknown, ordered: boolean): string[] {
  if (sort === null) return keys;
  if (Array.isArray(sort)) return keys.toSorted((a, b) => rank(sort.indexOf(a)) - rank(sort.indexOf(b)));
  const begin = (key: string) => key.slice(0, 3).toLowerCase();
  const own = ORDERS.find((names) => keys.every((key) => key === "null" || names.includes(begin(key))));
  if (own) return keys.toSorted((a, b) => rank(own.indexOf(begin(a))) - rank(own.indexOf(begin(b))));
  const named = typeof sort === "object" ? ((sort as { order?: unknown }).order === "ascending" ? "x" : "-x") : sort;
  if (named === "ascending" || named === "descending" || (ordered && named === undefined))
    return keys.toSorted((a, b) => inNature(a, b) * (named === "descending" ? -1 : 1));
  const sums = new Map<string, number>();
  for (const one of series) for (const { x, y } of one.points) sums.set(String(x), (sums.get(String(x)) ?? 0) + y);
  const upward = named === "x" || named === "y" ? -1 : 1;
  return keys.toSorted((a, b) => upward * ((sums.get(b) as number) - (sums.get(a) as number)));
}

function rank(place: number): number {
  return place < 0 ? Number.MAX_SAFE_INTEGER : place;
}

/** Numbers by size, other values as text, null last. */
function inNature(a: string, b: string): number {
  if (a === "null" || b === "null") return Number(a === "null") - Number(b === "null");
  const apart = Number(a) - Number(b);
  return Number.isNaN(apart) ? (a < b ? -1 : a > b ? 1 : 0) : apart;
}

function nameOf(channel: Channel): string {
  return channel.title ?? plainField(channel.field ?? "");
}

function titleOf(spec: ChartSpec, up: Channel, across: Channel, color: Channel | undefined): string {
  const given = typeof spec.title === "string" ? spec.title : spec.title?.text;
  const by = color?.field && color.field !== across.field ? ` and ${nameOf(color)}` : "";
  return given ?? `${inWords(nameOf(up))} by ${nameOf(across)}${by}`;
}

/** How the names of computed columns begin, and how people say it. */
const FOLDS: Record<string, string> = { sum: "Total", avg: "Average", min: "Lowest", max: "Highest", median: "Median" };

function inWords(name: string): string {
  return name.replace(/^(sum|avg|min|max|median)_(?=.)/, (_, fold: string) => `${FOLDS[fold]} `);
}

/** One line of a chart of bars: a bar, several parts of a stacked one, or the name of a group above its bars. */
export interface BarRow {
  label: string;
  parts: { from: number; to: number; series: number; name: string }[];
  value: number | null;
  first: boolean;
  group: boolean;
}

/** Bars that are drawn until somebody asks for the others. */
export const BARS = 24;
const NOT_ADDED = /^(avg|average|mean|median|min|max|highest|lowest|share|rate|ratio|percent|pct|count_distinct)|%|(_|\b)(rate|share|ratio|pct|percent)$/i;

export interface Bars {
  rows: BarRow[];
  /** How many bars there are with those that are left out. */
  all: number;
  shown: number;
  /** Whether colours tell series apart. */
  coloured: boolean;
}

interface Bar extends Point {
  series: number;
  name: string;
}

/** Lay out bars: one per category; of two categories grouped, stacked if that would be too many, or with both names. */
export function barsOf(data: ChartData, most = BARS): Bars {
  const byKey = new Map<string, Bar[]>(data.keys.map((key) => [key, []]));
  data.series.forEach(({ name, points }, series) => points.forEach((point) => byKey.get(String(point.x))?.push({ ...point, name, series })));
  const groups = [...byKey.values()];
  const bars = groups.flat();
  const several = data.series.length > 1;
  if (!several || bars.length === groups.length || bars.length < groups.length * data.series.length * 0.4) {
    const flat = several ? bars.toSorted((a, b) => b.y - a.y) : bars;
    return { ...simple(flat.slice(0, most), data), all: bars.length, coloured: false };
  }
  if (bars.length > BARS && bars.every((bar) => bar.y >= 0) && !NOT_ADDED.test(data.yName))
    return { ...stack(groups.slice(0, most), data), all: groups.length, coloured: true };
  const rows: BarRow[] = [];
  let shown = 0;
  const place = scaleOf(bars);
  for (const group of groups) {
    if (shown >= most) break;
    rows.push({ label: labelOf(group[0]?.x, data), parts: [], value: null, first: false, group: true });
    for (const bar of group) rows.push({ label: bar.name, parts: [{ ...place(bar.y), series: bar.series, name: bar.name }], value: bar.y, first: true, group: false });
    shown += group.length;
  }
  return { rows, all: bars.length, shown, coloured: true };
}

function scaleOf(bars: Bar[]): (value: number) => { from: number; to: number } {
  const values = bars.map((bar) => bar.y);
  const [top, bottom] = [Math.max(0, ...values), Math.min(0, ...values)];
  const span = top - bottom || 1;
  const place = (value: number) => Math.round(((value - bottom) / span) * 1000);
  return (value) => ({ from: place(Math.min(0, value)), to: place(Math.max(0, value)) });
}

function simple(bars: Bar[], data: ChartData): { rows: BarRow[]; shown: number } {
  const place = scaleOf(bars);
  const best = Math.max(...bars.map((bar) => bar.y));
  const label = ({ x, name }: Bar) => (name ? `${labelOf(x, data)} · ${name}` : labelOf(x, data));
  const rows = bars.map((bar) => ({ label: label(bar), parts: [{ ...place(bar.y), series: 0, name: "" }], value: bar.y, first: bar.y === best, group: false }));
  return { rows, shown: rows.length };
}

function stack(groups: Bar[][], data: ChartData): { rows: BarRow[]; shown: number } {
  const sums = groups.map((group) => group.reduce((sum, bar) => sum + bar.y, 0));
  const top = Math.max(...sums) || 1;
  const rows = groups.map((group, at) => {
    let from = 0;
    const parts = group.map(({ y, series, name }) => {
      const part = { from: Math.round((from / top) * 1000), to: Math.round(((from + y) / top) * 1000), series, name };
      from += y;
      return part;
    });
    return { label: labelOf(group[0]?.x, data), parts, value: sums[at] as number, first: true, group: false };
  });
  return { rows, shown: rows.length };
}

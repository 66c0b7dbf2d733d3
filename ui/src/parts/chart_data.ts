// What a chart shows, read from a Vega-Lite specification without data and the rows of its result.

import { isNumeric } from "../format";
import type { ChartSpec, ResultColumn } from "../types";

export type Form = "bars" | "line" | "points";

export interface Series {
  name: string;
  points: { x: unknown; y: number }[];
}

export interface ChartData {
  form: Form;
  title: string;
  xName: string;
  yName: string;
  xType: "category" | "number" | "time";
  series: Series[];
}

interface Channel {
  field?: string;
  type?: string;
  title?: string;
}

/** Return what to draw, in the form of the specification or in another one that is wanted; null if the specification
 * asks for more than bars, lines and points. */
export function readChart(spec: ChartSpec, columns: ResultColumn[], rows: unknown[][], wanted?: Form): ChartData | null {
  const mark = typeof spec.mark === "string" ? spec.mark : spec.mark?.type;
  const forms: Record<string, Form> = { bar: "bars", line: "line", area: "line", point: "points", circle: "points" };
  const given = mark === undefined ? undefined : forms[mark];
  const form = given && (wanted ?? given);
  const { x, y, color, ...others } = (spec.encoding ?? {}) as Record<string, Channel | undefined>;
  const unknown = Object.keys(others).some((name) => !["tooltip", "order", "opacity", "xOffset"].includes(name));
  if (!form || !x?.field || !y?.field || unknown) return null;
  const index = (name: string | undefined) => columns.findIndex((column) => column.name === name);
  let [across, up] = [x, y];
  if (given === "bars" && x.type === "quantitative" && y.type !== "quantitative") [across, up] = [y, x];
  const [xAt, yAt, colorAt] = [index(across.field), index(up.field), color?.field ? index(color.field) : -1];
  if (xAt < 0 || yAt < 0 || (color?.field && colorAt < 0)) return null;
  const series = new Map<string, Series>();
  for (const row of rows) {
    const value = Number(row[yAt]);
    if (row[yAt] === null || Number.isNaN(value)) continue;
    const name = colorAt < 0 || colorAt === xAt ? "" : String(row[colorAt] ?? "null");
    const into = series.get(name) ?? { name, points: [] };
    into.points.push({ x: row[xAt], y: value });
    series.set(name, into);
  }
  const column = columns[xAt] as ResultColumn;
  const time = across.type === "temporal" || /^(date|time)/i.test(column.type);
  const number = !time && isNumeric(column.type) && across.type !== "ordinal" && across.type !== "nominal";
  const xType = form === "bars" ? "category" : time ? "time" : number ? "number" : "category";
  if (form === "bars" && series.size > 1) return null;
  return { form, title: titleOf(spec, up, across), xName: nameOf(across), yName: nameOf(up), xType, series: [...series.values()] };
}

function nameOf(channel: Channel): string {
  return channel.title ?? channel.field ?? "";
}

function titleOf(spec: ChartSpec, up: Channel, across: Channel): string {
  const given = typeof spec.title === "string" ? spec.title : spec.title?.text;
  return given ?? `${nameOf(up)} by ${nameOf(across)}`;
}

// Charts in the page's own hand: bars, lines, points and pies as SVG that follows the theme. Widths are SVG attributes,
// never styles.

import { useRef, useState } from "preact/hooks";
import { call } from "../api";
import { axisNumber, count, counted, fraction, monthOf, placesOf } from "../format";
import type { ChartSpec, ResultInfo, RowPage } from "../types";
import { BARS, type Bars, barsOf, type ChartData, type Form, placeOf, readChart, type Series } from "./chart_data";
import { Failure, useLoaded, Waiting } from "./loading";
import { Pie } from "./pie";
import { useWidth } from "./width";

const MOST = 2000;
/** Rows that a chart draws; it says so if there are more. */
const MOST_BARS = 200;
/** Colours of series; further ones are grey. */
const COLOURS = 8;
/** Labels along an axis. */
const LABELS = 7;
const FORMS: [Form, string][] = [["bars", "Bars"], ["line", "Line"], ["points", "Points"], ["pie", "Pie"]];
const HEIGHT = 240;
const PAD = { left: 56, right: 12, top: 10, bottom: 24 };
/** The form that was chosen for a result, kept while the page is open. */
const CHOSEN = new Map<string, Form>();

interface Props {
  spec: ChartSpec;
  info: ResultInfo;
  path: string;
  /** Which rows the chart is of, if not of all. */
  conditions?: string;
}

export function Chart({ spec, info, path, conditions = "" }: Props) {
  const separator = path.includes("?") ? "&" : "?";
  const [wanted, setWanted] = useState<Form | null>(CHOSEN.get(path) ?? null);
  const loaded = useLoaded((abort) => call<RowPage>("GET", `${path}${separator}limit=${MOST}`, undefined, abort), [path]);
  if (loaded.error) return <Failure error={loaded.error} again={loaded.reload} />;
  if (!loaded.data) return <Waiting for="Reading the rows of the chart" />;
  const { columns, rows } = loaded.data;
  const own = readChart(spec, columns, rows);
  const data = (wanted && readChart(spec, columns, rows, wanted)) || own;
  if (!own || !data) return null;
  const forms = FORMS.filter(([form]) => form === own.form || readChart(spec, columns, rows, form) !== null);
  const choose = (form: Form) => {
    CHOSEN.set(path, form);
    setWanted(form);
  };
  return <Drawn data={data} conditions={conditions} more={spec.data ? 0 : info.row_count - rows.length} forms={forms} onForm={choose} />;
}

interface DrawnProps {
  data: ChartData;
  conditions: string;
  more: number;
  forms: [Form, string][];
  onForm: (form: Form) => void;
}

function Drawn({ data, conditions, more, forms, onForm }: DrawnProps) {
  const figure = useRef<HTMLElement>(null);
  const [all, setAll] = useState(false);
  const bars = data.form === "bars" ? barsOf(data, all ? MOST_BARS : BARS) : null;
  const named = data.series.length > 1 && (bars === null || bars.coloured) ? data.series.map((series) => series.name) : [];
  return (
    <figure ref={figure} class="chart">
      <div class="hd">
        <h3>{data.title}</h3>
        <span class="acts">
          {forms.length > 1 && (
            <span class="seg" role="group" aria-label="Form of the chart">
              {forms.map(([form, word]) => <button type="button" key={form} aria-pressed={data.form === form} onClick={() => onForm(form)}>{word}</button>)}
            </span>
          )}
          <button type="button" class="link" onClick={() => save(figure.current, data.title, "svg")}>SVG</button>
          <button type="button" class="link" onClick={() => save(figure.current, data.title, "png")}>PNG</button>
        </span>
      </div>
      {conditions && <p class="note subtitle">{conditions}</p>}
      {named.length > 0 && (
        <div class="legend">
          {named.slice(0, COLOURS).map((name, index) => <span key={name}><i class={colour(index, name)} />{name}</span>)}
          {named.length > COLOURS && <span>and {count(named.length - COLOURS)} more in grey</span>}
        </div>
      )}
      {bars ? <BarRows bars={bars} /> : data.form === "pie" ? <Pie data={data} colour={colour} /> : <Plot data={data} />}
      {bars && bars.shown < bars.all && (
        <p class="note">
          {count(bars.shown)} of {counted(bars.all, "bar")}.{" "}
          {all ? "The table has them all." : <button type="button" class="link" onClick={() => setAll(true)}>Show {bars.all > MOST_BARS ? "more" : "all"}</button>}
        </p>
      )}
      {data.left > 0 && <p class="note">{counted(data.left, "row")} without a {data.xType === "time" ? "date" : data.xName} {data.left === 1 ? "is" : "are"} not drawn.</p>}
      {more > 0 && <figcaption class="note">The first {count(MOST)} rows; {count(more)} more are in the table.</figcaption>}
    </figure>
  );
}

/** The class of a series by its place; rows without a category are grey. */
function colour(index: number, name = ""): string {
  return `s${name === "null" ? COLOURS + 1 : Math.min(index, COLOURS) + 1}`;
}

function BarRows({ bars }: { bars: Bars }) {
  const places = placesOf(bars.rows.map((row) => row.value));
  return (
    <div class={bars.coloured ? "bars coloured" : "bars"}>
      {bars.rows.map((row, index) => row.group ? <b key={index} class="group">{row.label}</b> : (
        <>
          <span key={`${index} label`} class="clip-2" title={row.label}>{row.label}</span>
          <svg viewBox="0 0 1000 12" preserveAspectRatio="none" aria-hidden="true">
            {row.parts.map((part, at) => (
              <rect key={at} class={bars.coloured ? `b ${colour(part.series, part.name)}` : row.first ? "b top1" : "b"} x={part.from} width={Math.max(1, part.to - part.from)} height={8} y={2} />
            ))}
          </svg>
          <span class="n">{row.value === null ? "" : fraction(row.value, places)}</span>
        </>
      ))}
    </div>
  );
}

function Plot({ data }: { data: ChartData }) {
  const [drawing, width] = useWidth();
  const categories = [...new Set(data.series.flatMap((series) => series.points.map((point) => String(point.x))))];
  const xOf = (value: unknown): number => (data.xType === "category" ? categories.indexOf(String(value)) : placeOf(value, data.xType));
  const all = data.series.flatMap((series) => series.points.map((point) => ({ x: xOf(point.x), y: point.y })));
  const [x0, x1] = extent(all.map((point) => point.x));
  const [low, high] = extent(all.map((point) => point.y));
  const marked = axisTicks(low > 0 && low < high * 0.6 ? 0 : low, high);
  const [y0, y1] = [marked[0] as number, marked.at(-1) as number];
  const px = (x: number) => PAD.left + ((x - x0) / (x1 - x0 || 1)) * (width - PAD.left - PAD.right);
  const py = (y: number) => HEIGHT - PAD.bottom - ((y - y0) / (y1 - y0 || 1)) * (HEIGHT - PAD.top - PAD.bottom);
  const label = (x: number) =>
    data.xType === "time" ? monthOf(new Date(x).toISOString().slice(0, 10), data.dates) : data.xType === "number" ? fraction(x) : (categories[Math.round(x)] ?? "");
  const most = Math.max(2, Math.min(LABELS, Math.floor(width / 76)));
  const marks = data.xType === "time" ? timeTicks(x0, x1, most)
    : data.xType === "number" ? ticks(x0, x1).map((x) => ({ x, text: axisNumber(x) }))
    : spread(categories.length, most).map((x) => ({ x, text: shorten(categories[x] ?? "") }));
  const pathOf = (series: Series) =>
    series.points.map((point, index) => `${index ? "L" : "M"}${px(xOf(point.x)).toFixed(1)} ${py(point.y).toFixed(1)}`).join("");
  return (
    <svg ref={drawing} class="plot" viewBox={`0 0 ${width} ${HEIGHT}`} role="img" aria-label={`${data.title}: from ${label(x0)} to ${label(x1)}, between ${fraction(low)} and ${fraction(high)}`}>
      {marked.map((tick) => (
        <g key={tick}>
          <path class="gl" d={`M${PAD.left} ${py(tick)}H${width - PAD.right}`} />
          <text x={PAD.left - 6} y={py(tick) + 4} text-anchor="end">{axisNumber(tick)}</text>
        </g>
      ))}
      {marks.map(({ x, text }) => (
        <g key={x}>
          <path class="gl" d={`M${px(x).toFixed(1)} ${HEIGHT - PAD.bottom}v4`} />
          <text x={px(x)} y={HEIGHT - 6} text-anchor={px(x) < PAD.left + 24 ? "start" : px(x) > width - PAD.right - 24 ? "end" : "middle"}>{text}</text>
        </g>
      ))}
      {data.series.map((series, index) =>
        data.form === "line" && series.points.length > 1 ? (
          <path key={series.name} class={`line ${colour(index, series.name)}`} d={pathOf(series)} />
        ) : (
          series.points.map((point, at) => <circle key={at} class={`dot ${colour(index, series.name)}`} cx={px(xOf(point.x))} cy={py(point.y)} r={2.5}><title>{`${label(xOf(point.x))}: ${fraction(point.y)}`}</title></circle>)
        ),
      )}
    </svg>
  );
}

function extent(values: number[]): [number, number] {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return values.length ? [low, high] : [0, 1];
}

/** About four round values between two numbers. */
export function ticks(low: number, high: number): number[] {
  if (high <= low) return [low];
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= rough) ?? rough;
  const found = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-9; tick += step) found.push(Number(tick.toPrecision(12)));
  return found;
}

/** Round values from at or below the least to at or above the greatest, so that an axis reaches both. */
export function axisTicks(low: number, high: number): number[] {
  if (high <= low) return low === 0 ? [0, 1] : axisTicks(Math.min(0, low), Math.max(0, low));
  const inner = ticks(low, high);
  const step = inner.length > 1 ? (inner[1] as number) - (inner[0] as number) : high - low;
  const found = [];
  for (let at = Math.floor(low / step + 1e-9); at <= Math.ceil(high / step - 1e-9); at += 1) found.push(Number((at * step).toPrecision(12)));
  return found;
}

/** At most `most` of the positions from 0 up to `size`, at equal distances. */
function spread(size: number, most: number): number[] {
  const step = Math.max(1, Math.ceil(size / most));
  return Array.from({ length: Math.ceil(size / step) }, (_, index) => index * step);
}

function shorten(text: string): string {
  return text.length > 14 ? `${text.slice(0, 13)}…` : text;
}

const DAY = 86_400_000;
/** Steps of an axis of time: months, then days. */
const MONTHS = [1, 2, 3, 6, 12, 24, 60, 120, 240];
const DAYS = [1, 2, 7, 14];

/** The beginnings of years, months or days between two moments, with the year where it changes. */
export function timeTicks(low: number, high: number, most = LABELS): { x: number; text: string }[] {
  const days = (high - low) / DAY;
  if (!(days > 0)) return Number.isFinite(low) ? [{ x: low, text: new Date(low).toISOString().slice(0, 10) }] : [];
  if (days < 2) return [low, high].map((x) => ({ x, text: new Date(x).toISOString().slice(5, 16).replace("T", " ") }));
  const found: { x: number; text: string }[] = [];
  const first = new Date(low);
  const step = DAYS.find((one) => days / one <= most);
  if (step !== undefined) {
    for (let x = Math.ceil(low / DAY) * DAY; x <= high; x += step * DAY)
      found.push({ x, text: new Date(x).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" }) });
    return found;
  }
  const months = MONTHS.find((one) => days / 30.4 / one <= most) ?? 1200;
  for (let month = Math.ceil((first.getUTCFullYear() * 12 + first.getUTCMonth()) / months) * months; ; month += months) {
    const at = new Date(Date.UTC(Math.floor(month / 12), month % 12));
    if (at.getTime() > high) return found;
    if (at.getTime() < low) continue;
    const year = month % 12 === 0 || found.length === 0;
    const text = months >= 12 ? String(at.getUTCFullYear()) : at.toLocaleDateString("en-GB", { month: "short", ...(year ? { year: "numeric" } : {}), timeZone: "UTC" });
    found.push({ x: at.getTime(), text });
  }
}

/** Save the chart as it is shown: the drawing with its colours written into it. */
function save(figure: HTMLElement | null, title: string, ending: "svg" | "png"): void {
  if (!figure) return;
  void import("./chart_file").then(({ saveChart }) => saveChart(figure, title, ending));
}

// Charts in the page's own hand: bars, lines and points as SVG that follows the theme. Widths are SVG attributes,
// never styles.

import { useRef, useState } from "preact/hooks";
import { call } from "../api";
import { axisNumber, count, fraction, placesOf } from "../format";
import type { ChartSpec, ResultInfo, RowPage } from "../types";
import { type ChartData, type Form, readChart, type Series } from "./chart_data";
import { Failure, useLoaded, Waiting } from "./loading";

const MOST = 2000;
/** Rows that a chart draws; it says so if there are more. */
const BARS = 20;
/** Labels along an axis. */
const LABELS = 7;
const FORMS: [Form, string][] = [["bars", "Bars"], ["line", "Line"], ["points", "Points"]];
const [WIDTH, HEIGHT] = [560, 240];
const PAD = { left: 56, right: 12, top: 10, bottom: 24 };

export function Chart({ spec, info, path }: { spec: ChartSpec; info: ResultInfo; path: string }) {
  const separator = path.includes("?") ? "&" : "?";
  const [wanted, setWanted] = useState<Form | null>(null);
  const loaded = useLoaded((abort) => call<RowPage>("GET", `${path}${separator}limit=${MOST}`, undefined, abort), [path]);
  if (loaded.error) return <Failure error={loaded.error} again={loaded.reload} />;
  if (!loaded.data) return <Waiting for="Reading the rows of the chart" />;
  const { columns, rows } = loaded.data;
  const own = readChart(spec, columns, rows);
  const data = (wanted && readChart(spec, columns, rows, wanted)) || own;
  if (!own || !data) return <p class="note">This chart needs a form that the page does not draw yet; Details has its specification.</p>;
  const forms = FORMS.filter(([form]) => form === own.form || readChart(spec, columns, rows, form) !== null);
  return <Drawn data={data} more={info.row_count - rows.length} forms={forms} onForm={setWanted} />;
}

interface DrawnProps {
  data: ChartData;
  more: number;
  forms: [Form, string][];
  onForm: (form: Form) => void;
}

function Drawn({ data, more, forms, onForm }: DrawnProps) {
  const figure = useRef<HTMLElement>(null);
  return (
    <figure ref={figure} class="chart">
      <div class="hd">
        <h3>{data.title}</h3>
        <span class="acts">
          <span class="seg" role="group" aria-label="Form of the chart">
            {forms.map(([form, word]) => <button type="button" key={form} aria-pressed={data.form === form} onClick={() => onForm(form)}>{word}</button>)}
          </span>
          <button type="button" class="link" onClick={() => save(figure.current, data.title, "svg")}>SVG</button>
          <button type="button" class="link" onClick={() => save(figure.current, data.title, "png")}>PNG</button>
        </span>
      </div>
      {data.series.length > 1 && (
        <div class="legend">
          {data.series.slice(0, 5).map((series, index) => <span key={series.name}><i class={`s${index + 1}`} />{series.name}</span>)}
          {data.series.length > 5 && <span>and {count(data.series.length - 5)} more in grey</span>}
        </div>
      )}
      {data.form === "bars" ? <Bars data={data} /> : <Plot data={data} />}
      {more > 0 && <figcaption class="note">The first {count(MOST)} rows; {count(more)} more are in the table.</figcaption>}
    </figure>
  );
}

function Bars({ data }: { data: ChartData }) {
  const points = data.series[0]?.points ?? [];
  const shown = points.slice(0, BARS);
  const top = Math.max(0, ...shown.map((point) => point.y));
  const bottom = Math.min(0, ...shown.map((point) => point.y));
  const span = top - bottom || 1;
  const place = (value: number) => Math.round(((value - bottom) / span) * 1000);
  const places = placesOf(shown.map((point) => point.y));
  const best = shown.reduce((index, point, at) => (point.y > (shown[index]?.y ?? 0) ? at : index), 0);
  return (
    <>
      <div class="bars">
        {shown.map((point, index) => (
          <Bar key={index} label={String(point.x ?? "null")} value={point.y} places={places} from={place(Math.min(0, point.y))} to={place(Math.max(0, point.y))} first={index === best} />
        ))}
      </div>
      {points.length > shown.length && <p class="note">{count(shown.length)} of {count(points.length)} bars; the table has them all.</p>}
    </>
  );
}

function Bar({ label, value, places, from, to, first }: { label: string; value: number; places: number; from: number; to: number; first: boolean }) {
  return (
    <>
      <span class="clip" title={label}>{label}</span>
      <svg viewBox="0 0 1000 12" preserveAspectRatio="none" aria-hidden="true">
        <rect class={first ? "b top1" : "b"} x={from} width={Math.max(1, to - from)} height={8} y={2} />
      </svg>
      <span class="n">{fraction(value, places)}</span>
    </>
  );
}

function Plot({ data }: { data: ChartData }) {
  const categories = [...new Set(data.series.flatMap((series) => series.points.map((point) => String(point.x))))];
  const xOf = (value: unknown): number =>
    data.xType === "time" ? Date.parse(String(value)) : data.xType === "number" ? Number(value) : categories.indexOf(String(value));
  const all = data.series.flatMap((series) => series.points.map((point) => ({ x: xOf(point.x), y: point.y }))).filter((p) => Number.isFinite(p.x));
  const [x0, x1] = extent(all.map((point) => point.x));
  const [low, high] = extent(all.map((point) => point.y));
  const [y0, y1] = [low > 0 && low < high * 0.6 ? 0 : low, high];
  const px = (x: number) => PAD.left + ((x - x0) / (x1 - x0 || 1)) * (WIDTH - PAD.left - PAD.right);
  const py = (y: number) => HEIGHT - PAD.bottom - ((y - y0) / (y1 - y0 || 1)) * (HEIGHT - PAD.top - PAD.bottom);
  const label = (x: number) =>
    data.xType === "time" ? new Date(x).toISOString().slice(0, 10) : data.xType === "number" ? fraction(x) : (categories[Math.round(x)] ?? "");
  const marks = data.xType === "time" ? timeTicks(x0, x1)
    : data.xType === "number" ? ticks(x0, x1).map((x) => ({ x, text: axisNumber(x) }))
    : spread(categories.length, LABELS).map((x) => ({ x, text: shorten(categories[x] ?? "") }));
  const pathOf = (series: Series) =>
    series.points.filter((point) => Number.isFinite(xOf(point.x))).map((point, index) => `${index ? "L" : "M"}${px(xOf(point.x)).toFixed(1)} ${py(point.y).toFixed(1)}`).join("");
  return (
    <svg class="plot" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${data.title}: from ${label(x0)} to ${label(x1)}, between ${fraction(low)} and ${fraction(high)}`}>
      {ticks(y0, y1).map((tick) => (
        <g key={tick}>
          <path class="gl" d={`M${PAD.left} ${py(tick)}H${WIDTH - PAD.right}`} />
          <text x={PAD.left - 6} y={py(tick) + 4} text-anchor="end">{axisNumber(tick)}</text>
        </g>
      ))}
      {marks.map(({ x, text }) => (
        <g key={x}>
          <path class="gl" d={`M${px(x).toFixed(1)} ${HEIGHT - PAD.bottom}v4`} />
          <text x={px(x)} y={HEIGHT - 6} text-anchor={px(x) < PAD.left + 24 ? "start" : px(x) > WIDTH - PAD.right - 24 ? "end" : "middle"}>{text}</text>
        </g>
      ))}
      {data.series.map((series, index) =>
        data.form === "line" ? (
          <path key={series.name} class={`line s${Math.min(index + 1, 6)}`} d={pathOf(series)} />
        ) : (
          series.points.map((point, at) => <circle key={at} class={`dot s${Math.min(index + 1, 6)}`} cx={px(xOf(point.x))} cy={py(point.y)} r={2.5}><title>{`${label(xOf(point.x))}: ${fraction(point.y)}`}</title></circle>)
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
export function timeTicks(low: number, high: number): { x: number; text: string }[] {
  const days = (high - low) / DAY;
  if (!(days > 0)) return Number.isFinite(low) ? [{ x: low, text: new Date(low).toISOString().slice(0, 10) }] : [];
  if (days < 2) return [low, high].map((x) => ({ x, text: new Date(x).toISOString().slice(5, 16).replace("T", " ") }));
  const found: { x: number; text: string }[] = [];
  const first = new Date(low);
  const step = DAYS.find((one) => days / one <= LABELS);
  if (step !== undefined) {
    for (let x = Math.ceil(low / DAY) * DAY; x <= high; x += step * DAY)
      found.push({ x, text: new Date(x).toLocaleDateString("en-GB", { day: "numeric", month: "short", timeZone: "UTC" }) });
    return found;
  }
  const months = MONTHS.find((one) => days / 30.4 / one <= LABELS) ?? 1200;
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

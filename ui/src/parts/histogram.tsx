// How the values of a column are distributed, from the equal-depth bins of its profile.

import { useState } from "preact/hooks";
import { axisNumber, count, fraction } from "../format";

export interface Depths {
  kind?: string;
  edges: unknown[];
  counts: number[];
}

interface Scale {
  to: (value: number) => number;
  back: (place: number) => number;
}

const LINEAR: Scale = { to: (value) => value, back: (place) => place };
/** A bar that holds more than this share of all values hides the others. */
const CROWDED = 0.5;
const [SMALL, LARGE] = [24, 60];
/** Parts of 1 that differences between fractions are counted in. */
const FINEST = 1_000_000;

interface Bar {
  /** Where it stands, from 0 to 1. */
  from: number;
  width: number;
  amount: number;
  title?: string;
}

/** The distribution in miniature. */
export function Sparkline({ depths, plain }: { depths: Depths | null | undefined; plain: boolean }) {
  const read = plain ? null : readEdges(depths);
  if (!read) return <svg class="sp" aria-hidden="true" />;
  const log = !read.values && isCrowded(read.edges, read.counts) && !read.dates;
  const bars = log ? scaled(read, logScale(read.edges), SMALL) : barsOf(read, SMALL);
  return (
    <svg class="sp" viewBox="0 0 96 20" aria-hidden="true"><Drawn bars={bars} width={96} height={20} /></svg>
  );
}

/** The distribution with its axis; bins of equal ratio are offered if most values would share one bar. */
export function Histogram({ depths }: { depths: Depths | null | undefined }) {
  const read = readEdges(depths);
  const crowded = read !== null && !read.values && !read.dates && isCrowded(read.edges, read.counts);
  const [log, setLog] = useState(crowded);
  if (!read) return null;
  const scale = log ? logScale(read.edges) : LINEAR;
  const bars = log ? scaled(read, scale, LARGE) : barsOf(read, LARGE);
  const [low, high] = [scale.to(read.edges[0] as number), scale.to(read.edges.at(-1) as number)];
  const label = (part: number) => {
    const value = scale.back(low + (high - low) * part);
    if (read.dates) return new Date(value).toISOString().slice(0, 10);
    return part === 0 || part === 1 ? fraction(Number(value.toPrecision(12))) : axisNumber(Number(value.toPrecision(read.values ? 3 : 2)));
  };
  return (
    <figure class="hist">
      {crowded && (
        <span class="seg" role="group" aria-label="Bins of equal">
          <button type="button" aria-pressed={log} onClick={() => setLog(true)}>Log</button>
          <button type="button" aria-pressed={!log} onClick={() => setLog(false)}>Linear</button>
        </span>
      )}
      <svg viewBox="0 0 600 90" preserveAspectRatio="none" role="img" aria-label={`${read.values ? `${bars.length} values` : "Distribution"} from ${label(0)} to ${label(1)}${log ? ", on a logarithmic axis" : ""}`}>
        <Drawn bars={bars} width={600} height={89} />
        <path class="gl" d="M0 89.5H600" />
      </svg>
      <div class="axis">{[0, 0.25, 0.5, 0.75, 1].map((part) => <span key={part}>{label(part)}</span>)}</div>
    </figure>
  );
}

function Drawn({ bars, width, height }: { bars: Bar[]; width: number; height: number }) {
  const top = Math.max(...bars.map((bar) => bar.amount)) || 1;
  return (
    <>
      {bars.map((bar, index) => {
        const tall = bar.amount > 0 ? Math.max(0.6, (bar.amount / top) * height) : 0;
        return <rect key={index} class="b" x={bar.from * width} width={bar.width * width * 0.86} y={height - tall} height={tall}>{bar.title && <title>{bar.title}</title>}</rect>;
      })}
    </>
  );
}

interface Read {
  edges: number[];
  counts: number[];
  dates: boolean;
  /** Whether the edges are all values, each with its count. */
  values: boolean;
}

function readEdges(depths: Depths | null | undefined): Read | null {
  if (!depths) return null;
  const number = (edge: unknown) => (typeof edge === "number" ? edge : typeof edge === "string" && /^-?\d+(\.\d+)?$/.test(edge) ? Number(edge) : null);
  const dates = depths.edges.some((edge) => number(edge) === null);
  const edges = depths.edges.map((edge) => number(edge) ?? Date.parse(String(edge)));
  const values = depths.kind === "values";
  if (edges.length < (values ? 2 : 3) || edges.some(Number.isNaN) || edges[0] === edges.at(-1)) return null;
  return { edges, counts: depths.counts, dates, values };
}

/** The distance of which all differences between numbers are multiples; null if there is none to see. */
export function stepOf(numbers: number[]): number | null {
  const scale = numbers.every(Number.isInteger) ? 1 : FINEST;
  const whole = numbers.map((value) => Math.round(value * scale));
  if (whole.some((value) => !Number.isSafeInteger(value))) return null;
  const shared = whole.reduce((divisor, value) => commonDivisor(divisor, Math.abs(value - (whole[0] as number))), 0);
  return shared === 0 ? null : shared / scale;
}

function commonDivisor(a: number, b: number): number {
  return b === 0 ? a : commonDivisor(b, a % b);
}

/** A bar for each value if all are known; else bins, none of them finer than the step of the data. */
export function barsOf({ edges, counts, dates, values }: Read, most: number): Bar[] {
  const step = stepOf(edges);
  const [low, high] = [edges[0] as number, edges.at(-1) as number];
  const steps = step === null ? Number.POSITIVE_INFINITY : Math.round((high - low) / step) + 1;
  if (values) {
    // Each value has its true place on the axis, with room for the last one.
    const unit = steps <= 100 && step !== null ? step : (high - low) / 60;
    const span = high - low + unit;
    const said = (value: number) => (dates ? new Date(value).toISOString().slice(0, 10) : fraction(value));
    return edges.map((value, index) => ({ from: (value - low) / span, width: unit / span, amount: counts[index] ?? 0, title: `${said(value)}: ${count(counts[index] ?? 0)}` }));
  }
  if (step === null || steps > most * 50) return scaled({ edges, counts }, LINEAR, most);
  const per = Math.ceil(steps / most);
  const size = Math.ceil(steps / per);
  // Each value takes the room of one step around it.
  const widened = [low - step / 2, ...edges.slice(1).map((edge) => edge + step / 2), low - step / 2 + size * per * step];
  return scaled({ edges: widened, counts: [...counts, 0] }, LINEAR, size);
}

function scaled({ edges, counts }: { edges: number[]; counts: number[] }, scale: Scale, size: number): Bar[] {
  return rebin(edges, counts, scale, size).map((amount, index) => ({ from: index / size, width: 1 / size, amount }));
}

export function isCrowded(edges: number[], counts: number[]): boolean {
  const amounts = rebin(edges, counts, LINEAR, SMALL);
  return Math.max(...amounts) > CROWDED * amounts.reduce((sum, amount) => sum + amount, 0);
}

/** Logarithms of positive values; around zero a scale that is linear near it and logarithmic away from it. */
export function logScale(edges: number[]): Scale {
  if ((edges[0] as number) > 0) return { to: Math.log10, back: (place) => 10 ** place };
  const sizes = edges.map(Math.abs).filter((size) => size > 0).sort((one, other) => one - other);
  const unit = sizes[Math.floor(sizes.length / 4)] ?? 1;
  return { to: (value) => Math.asinh(value / unit), back: (place) => unit * Math.sinh(place) };
}

/** Share the values of each bin among bins of equal width on a scale. */
export function rebin(edges: number[], counts: number[], scale: Scale, size: number): number[] {
  const places = edges.map(scale.to);
  const [low, high] = [places[0] as number, places.at(-1) as number];
  const width = (high - low) / size || 1;
  const amounts = new Array<number>(size).fill(0);
  const clamp = (bin: number) => Math.min(size - 1, Math.max(0, bin));
  counts.forEach((amount, index) => {
    const [from, to] = [places[index] as number, places[index + 1] as number];
    const [first, last] = [clamp(Math.floor((from - low) / width)), clamp(Math.ceil((to - low) / width) - 1)];
    if (first >= last) {
      amounts[first] = (amounts[first] as number) + amount;
      return;
    }
    for (let bin = first; bin <= last; bin += 1) {
      const inside = Math.min(to, low + (bin + 1) * width) - Math.max(from, low + bin * width);
      amounts[bin] = (amounts[bin] as number) + amount * (Math.max(0, inside) / (to - from));
    }
  });
  return amounts;
}

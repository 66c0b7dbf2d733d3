// How the values of a column are distributed, from the equal-depth bins of its profile.

import { useState } from "preact/hooks";
import { axisNumber, fraction } from "../format";

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

/** The distribution in miniature. */
export function Sparkline({ depths, plain }: { depths: Depths | null | undefined; plain: boolean }) {
  const read = plain ? null : readEdges(depths);
  if (!read) return <svg class="sp" aria-hidden="true" />;
  const log = isCrowded(read.edges, read.counts) && !read.dates;
  const amounts = rebin(read.edges, read.counts, log ? logScale(read.edges) : LINEAR, SMALL);
  const top = Math.max(...amounts);
  return (
    <svg class="sp" viewBox="0 0 96 20" aria-hidden="true">
      {amounts.map((amount, index) => <rect key={index} class="b" x={index * 4} width={3} y={20 - (amount / top) * 20} height={(amount / top) * 20} />)}
    </svg>
  );
}

/** The distribution with its axis; bins of equal ratio are offered if most values would share one bar. */
export function Histogram({ depths }: { depths: Depths | null | undefined }) {
  const read = readEdges(depths);
  const crowded = read !== null && !read.dates && isCrowded(read.edges, read.counts);
  const [log, setLog] = useState(crowded);
  if (!read) return null;
  const scale = log ? logScale(read.edges) : LINEAR;
  const amounts = rebin(read.edges, read.counts, scale, LARGE);
  const top = Math.max(...amounts);
  const [low, high] = [scale.to(read.edges[0] as number), scale.to(read.edges.at(-1) as number)];
  const label = (part: number) => {
    const value = scale.back(low + (high - low) * part);
    if (read.dates) return new Date(value).toISOString().slice(0, 10);
    return part === 0 || part === 1 ? fraction(Number(value.toPrecision(12))) : axisNumber(Number(value.toPrecision(2)));
  };
  return (
    <figure class="hist">
      {crowded && (
        <span class="seg" role="group" aria-label="Bins of equal">
          <button type="button" aria-pressed={log} onClick={() => setLog(true)}>Log</button>
          <button type="button" aria-pressed={!log} onClick={() => setLog(false)}>Linear</button>
        </span>
      )}
      <svg viewBox={`0 0 ${LARGE * 10} 90`} preserveAspectRatio="none" role="img" aria-label={`Distribution from ${label(0)} to ${label(1)}${log ? ", on a logarithmic axis" : ""}`}>
        {amounts.map((amount, index) => <rect key={index} class="b" x={index * 10} width={8.5} y={89 - (amount / top) * 89} height={(amount / top) * 89} />)}
        <path class="gl" d={`M0 89.5H${LARGE * 10}`} />
      </svg>
      <div class="axis">{[0, 0.25, 0.5, 0.75, 1].map((part) => <span key={part}>{label(part)}</span>)}</div>
    </figure>
  );
}

function readEdges(depths: Depths | null | undefined): { edges: number[]; counts: number[]; dates: boolean } | null {
  if (!depths || depths.kind === "values") return null;
  const edges = depths.edges.map((edge) => (typeof edge === "number" ? edge : Date.parse(String(edge))));
  const dates = depths.edges.some((edge) => typeof edge !== "number");
  if (edges.length < 3 || edges.some(Number.isNaN) || edges[0] === edges.at(-1)) return null;
  return { edges, counts: depths.counts, dates };
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

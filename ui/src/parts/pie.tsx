// A pie: few parts of one whole, the largest first, each with its value and share.

import { fraction, placesOf } from "../format";
import { type ChartData, labelOf } from "./chart_data";
import { useWidth } from "./width";

const [SIZE, LINE, LEFT] = [220, 24, 250];
/** Narrower drawings have the names below the circle. */
const NARROW = 430;
const WIDEST = 560;

export function Pie({ data, colour }: { data: ChartData; colour: (index: number, name: string) => string }) {
  const points = data.keys.flatMap((key) => data.series[0]?.points.filter((point) => String(point.x) === key) ?? []);
  const sum = points.reduce((total, point) => total + point.y, 0);
  const places = placesOf(points.map((point) => point.y));
  const [drawing, wide] = useWidth();
  const width = Math.min(wide, WIDEST);
  const below = width < NARROW;
  const left = below ? 0 : LEFT;
  const top = below ? SIZE + LINE : SIZE / 2 - (points.length * LINE) / 2 + LINE / 2 + 5;
  const height = below ? top + points.length * LINE : SIZE;
  let from = 0;
  return (
    <svg ref={drawing} class="plot pie" viewBox={`0 0 ${width} ${height}`} role="img" aria-label={`${data.title}: ${points.map((point) => `${labelOf(point.x, data)} ${share(point.y, sum)}`).join(", ")}`}>
      {points.map((point, index) => {
        const label = labelOf(point.x, data);
        const [start, end] = [from / sum, (from + point.y) / sum];
        from += point.y;
        return (
          <g key={label}>
            <path class={`dot ${colour(index, label)}`} d={slice(start, end)} />
            <rect class={`dot ${colour(index, label)}`} x={left} y={top + index * LINE - 9} width={10} height={10} />
            <text x={left + 18} y={top + index * LINE}>{label.length > 24 ? `${label.slice(0, 23)}…` : label}</text>
            <text x={width - 56} y={top + index * LINE} text-anchor="end">{fraction(point.y, places)}</text>
            <text x={width - 2} y={top + index * LINE} text-anchor="end">{share(point.y, sum)}</text>
          </g>
        );
      })}
    </svg>
  );
}

function share(value: number, sum: number): string {
  return `${fraction(Math.round((value / sum) * 1000) / 10, 1)}%`;
}

/** The path of a part of the circle, between two shares of the way around from the top. */
function slice(start: number, end: number): string {
  const [middle, radius] = [SIZE / 2, SIZE / 2 - 6];
  const at = (turn: number) => `${(middle + radius * Math.sin(turn * 2 * Math.PI)).toFixed(2)} ${(middle - radius * Math.cos(turn * 2 * Math.PI)).toFixed(2)}`;
  const whole = end - start > 0.9999;
  return `M${middle} ${middle}L${at(start)}A${radius} ${radius} 0 ${end - start > 0.5 ? 1 : 0} 1 ${at(whole ? start + 0.9999 : end)}Z`;
}

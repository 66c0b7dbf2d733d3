// The share of tests that pass, run by run, with its interval.

import { counted, moment } from "../../format";
import type { CurvePoint } from "./types";

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [900, 200, 44, 22];

export function Curve({ points }: { points: CurvePoint[] }) {
  const repos = [...new Set(points.map((point) => point.repo))];
  return <>{repos.map((repo) => <RepoCurve key={repo} repo={repo} points={points.filter((point) => point.repo === repo && point.total > 0).toSorted((one, other) => one.at.localeCompare(other.at))} />)}</>;
}

function RepoCurve({ repo, points }: { repo: string; points: CurvePoint[] }) {
  const x = (index: number) => LEFT + (index / Math.max(1, points.length - 1)) * (WIDTH - LEFT - 8);
  const y = (share: number) => 8 + (1 - share) * (HEIGHT - BOTTOM - 8);
  const line = points.map((point, index) => `${index ? "L" : "M"}${x(index).toFixed(1)} ${y(point.passed / point.total).toFixed(1)}`).join("");
  const band = [
    ...points.map((point, index) => `${x(index).toFixed(1)} ${y(point.interval[1]).toFixed(1)}`),
    ...points.map((point, index) => `${x(index).toFixed(1)} ${y(point.interval[0]).toFixed(1)}`).reverse(),
  ].join(" ");
  const [first, last] = [points[0], points.at(-1)];
  if (!first || !last) return null;
  const share = (point: CurvePoint) => `${Math.round((point.passed / point.total) * 100)}%`;
  return (
    <figure class="chart">
      <div class="hd"><h3>{share(last)} of tests pass, was {share(first)}</h3><small>{repo} · {counted(points.length, "run")}</small></div>
      <svg class="plot" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`Share of tests that pass in ${repo}: from ${share(first)} to ${share(last)}`}>
        {[0, 0.5, 1].map((tick) => <g key={tick}><path class="gl" d={`M${LEFT} ${y(tick)}H${WIDTH}`} /><text x={LEFT - 6} y={y(tick) + 4} text-anchor="end">{tick * 100}%</text></g>)}
        <polygon class="band" points={band} />
        <path class="line s1" d={line} />
        {points.map((point, index) => <circle key={index} class={point.edit_id ? "dot s1" : "dot"} cx={x(index)} cy={y(point.passed / point.total)} r={2.5} />)}
        <text x={LEFT} y={HEIGHT - 4}>{moment(first.at)}</text>
        <text x={WIDTH - 8} y={HEIGHT - 4} text-anchor="end">{moment(last.at)}</text>
      </svg>
      <p class="legend"><span><i />as the code was</span><span><i class="s1" />with an edit</span></p>
    </figure>
  );
}

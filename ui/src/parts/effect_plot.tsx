// An effect with its interval, on one axis; and each try as a mark.

import { count } from "../format";

export interface Effect {
  label: string;
  effect: number;
  low: number;
  high: number;
}

/** Points of 100, with a real minus sign and a plus. */
export function points(share: number): string {
  const rounded = Math.round(share * 100);
  return `${rounded > 0 ? "+" : rounded < 0 ? "−" : ""}${Math.abs(rounded)}`;
}

/** Each effect is a point on a line from worse to better; it is grey if its interval holds zero. */
export function EffectPlot({ effects, worse = "worse", better = "better" }: { effects: Effect[]; worse?: string; better?: string }) {
  const reach = Math.max(0.1, ...effects.flatMap((one) => [Math.abs(one.low), Math.abs(one.high)]));
  const x = (share: number) => `${50 + (share / reach) * 48}%`;
  return (
    <div class="forest">
      <span class="head" /><span class="head axis"><span>{worse}</span><span>no effect</span><span>{better}</span></span><span class="head n">effect, 95% interval</span>
      {effects.map((one) => {
        const unsure = one.low <= 0 && one.high >= 0;
        return (
          <div class={unsure ? "fo unsure" : "fo"} key={one.label}>
            <span>{one.label}</span>
            <svg role="img" aria-label={`${one.label}: ${points(one.effect)} points, from ${points(one.low)} to ${points(one.high)}`}>
              <line class="zero" x1="50%" x2="50%" y1="0" y2="100%" />
              <line class="span" x1={x(one.low)} x2={x(one.high)} y1="50%" y2="50%" />
              <line class="span" x1={x(one.low)} x2={x(one.low)} y1="32%" y2="68%" />
              <line class="span" x1={x(one.high)} x2={x(one.high)} y1="32%" y2="68%" />
              <circle class="point" cx={x(one.effect)} cy="50%" r="4" />
            </svg>
            <span class="n"><b>{points(one.effect)}</b> <small>{points(one.low)} to {points(one.high)}</small></span>
          </div>
        );
      })}
    </div>
  );
}

/** One mark per try, hollow if it went wrong. */
export function Exposures({ label, outcomes }: { label: string; outcomes: boolean[] }) {
  const right = outcomes.filter(Boolean).length;
  const shown = outcomes.slice(-120);
  return (
    <div class="expo">
      <span>{label}</span>
      <span class="marks" role="img" aria-label={`${label}: ${right} of ${outcomes.length} right`}>
        {shown.map((fine, index) => <i key={index} class={fine ? "yes" : "nope"} />)}
      </span>
      <span class="n">{outcomes.length ? <><b>{count(right)}</b> of {count(outcomes.length)} right</> : "no tries yet"}</span>
    </div>
  );
}

// What changed in a source from catalog to catalog.

import { call } from "../api";
import { count, moment } from "../format";
import { Failure, useLoaded, Waiting } from "../parts/loading";
import { link } from "../router";

interface Change {
  id: string;
  severity: "low" | "medium" | "high";
  status: string;
}

export interface StoredCatalog {
  name: string;
  dataset: string;
  run_id: string | null;
  changes?: Change[];
}

const SHOWN = 24;

/** One column per stored catalog, oldest first: what was new in it, by weight. */
export function Drift({ dataset, catalogs }: { dataset: string; catalogs: StoredCatalog[] }) {
  const names = catalogs.slice(0, SHOWN).map((one) => one.name).reverse();
  const details = useLoaded(
    (abort) => Promise.all(names.map((name) => call<StoredCatalog>("GET", `/catalogs/${encodeURIComponent(dataset)}/${encodeURIComponent(name)}`, undefined, abort))),
    [dataset, names.join()],
  );
  if (details.error) return <Failure error={details.error} again={details.reload} />;
  if (!details.data) return <Waiting for="Reading the stored catalogs" />;
  const weights = details.data.map((one) => ({ name: one.name, run: one.run_id, ...weigh(one.changes ?? []) }));
  // The oldest catalog of all has nothing to be compared with.
  const first = catalogs.length <= SHOWN ? weights[0]?.name : undefined;
  const most = Math.max(1, ...weights.map((one) => one.high + one.medium + one.low));
  return (
    <>
      {weights.length > 1 && (
        <div class="drift" role="img" aria-label={`Changes per catalog, oldest first: ${weights.map((one) => one.high + one.medium + one.low).join(", ")}`}>
          {weights.map((one) => (
            <svg key={one.name} viewBox="0 0 20 60" preserveAspectRatio="none">
              <title>{`${one.name}: ${one.high} high, ${one.medium} medium, ${one.low} low`}</title>
              <rect class="d-hi" x={2} width={16} y={60 - (one.high / most) * 58} height={(one.high / most) * 58} />
              <rect class="d-me" x={2} width={16} y={60 - ((one.high + one.medium) / most) * 58} height={(one.medium / most) * 58} />
              <rect class="d-lo" x={2} width={16} y={60 - ((one.high + one.medium + one.low) / most) * 58} height={(one.low / most) * 58} />
              <path class="gl" d="M0 59.5H20" />
            </svg>
          ))}
        </div>
      )}
      <div class="scroll" tabIndex={0} role="region" aria-label="Stored catalogs">
        <table>
          <thead><tr><th>catalog</th><th class="n">high</th><th class="n">medium</th><th class="n">low</th><th>made by</th></tr></thead>
          <tbody>{weights.toReversed().map((one) => (
            <tr key={one.name}>
              <th><a target="_blank" rel="noopener" href={`/api/catalogs/${encodeURIComponent(dataset)}/${encodeURIComponent(one.name)}/catalog.html`}>{nameOf(one.name)}</a></th>
              <td class="n">{first === one.name ? "–" : count(one.high)}</td>
              <td class="n">{first === one.name ? "–" : count(one.medium)}</td>
              <td class="n">{first === one.name ? "–" : count(one.low)}</td>
              <td>{one.run && <a href={link("runs", one.run)}>run</a>}</td>
            </tr>
          ))}</tbody>
        </table>
      </div>
    </>
  );
}

function weigh(changes: Change[]): { high: number; medium: number; low: number } {
  const of = (severity: Change["severity"]) => changes.filter((change) => change.severity === severity && change.status !== "resolved").length;
  return { high: of("high"), medium: of("medium"), low: of("low") };
}

/** A catalog is named by its time, which reads better as one. */
function nameOf(name: string): string {
  const found = /(\d{4})-?(\d\d)-?(\d\d)[T_ -]?(\d\d)[-:]?(\d\d)/.exec(name);
  return found ? moment(`${found[1]}-${found[2]}-${found[3]}T${found[4]}:${found[5]}:00Z`) : name;
}

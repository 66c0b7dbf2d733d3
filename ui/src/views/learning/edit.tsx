// An edit of code: why, what it changes, what it did to the tests, and the way back.

import { useState } from "preact/hooks";
import { type ApiError, call, may } from "../../api";
import { count, moment } from "../../format";
import { CopyRequest } from "../../parts/copy";
import { Failure } from "../../parts/loading";
import { type Shape, State } from "../../parts/state";
import { TextDiff } from "../../parts/text_diff";
import type { Edit } from "./types";

export const EDIT_SHAPES: Record<Edit["status"], Shape> = { merged: "good", proposed: "ask", reverted: "off", dropped: "off", refused: "off" };

const VERDICTS: Record<Edit["status"], string> = {
  merged: "In the code now",
  proposed: "Proposed, not in the code",
  reverted: "Taken back",
  dropped: "Not kept: it did not help",
  refused: "Refused",
};

export function EditPage({ edit, onChange }: { edit: Edit; onChange: () => void }) {
  const [error, setError] = useState<ApiError | null>(null);
  const [asking, setAsking] = useState(false);
  const path = `/learning/edits/${encodeURIComponent(edit.id)}/revert`;
  const revert = async (event: SubmitEvent) => {
    event.preventDefault();
    const reason = String(new FormData(event.currentTarget as HTMLFormElement).get("reason")).trim();
    setError(null);
    try {
      await call("POST", path, reason ? { reason } : {});
      setAsking(false);
      onChange();
    } catch (failed) {
      setError(failed as ApiError);
    }
  };
  const percent = (share: number | null) => (share === null ? "not measured" : `${(share * 100).toFixed(1)}%`);
  return (
    <>
      <h1>{VERDICTS[edit.status]}</h1>
      <div class="facts"><State shape={EDIT_SHAPES[edit.status]}>{edit.status}</State><span class="mono">{edit.id}</span><span>by <b>{edit.proposer}</b></span><span>{moment(edit.created_at)}</span></div>
      <p class="lead">{edit.rationale}</p>
      <p class="note">{edit.reason}</p>
      {edit.status === "reverted" && (
        <p class="line-note">Taken back{edit.facts.reverted_at ? ` on ${moment(String(edit.facts.reverted_at))}` : ""}{edit.facts.reverted ? `: ${String(edit.facts.reverted)}` : ""}. The code is as it was before.</p>
      )}
      {edit.status === "merged" && may("admin") && (
        <div class="acts foot">
          <button type="button" class="halt" aria-expanded={asking} onClick={() => setAsking(!asking)}>Take back…</button>
          <CopyRequest method="POST" path={path} body={{}} />
        </div>
      )}
      {asking && (
        <form class="acts foot" onSubmit={(event) => void revert(event)}>
          <input name="reason" aria-label="Why it is taken back" placeholder="Why" autoFocus autoComplete="off" />
          <button type="submit" class="halt">Take it back</button>
          <small>The code becomes as it was before this edit; the record stays.</small>
        </form>
      )}
      {error && <Failure error={error} />}
      <section class="sect">
        <h2>Evidence</h2>
        <table>
          <thead><tr><th>evidence</th><th class="n">before</th><th class="n">after</th></tr></thead>
          <tbody>
            <tr><th>tests that pass</th><td class="n">{percent(edit.score_before)}</td><td class="n"><b>{percent(edit.score_after)}</b></td></tr>
            {edit.wins !== null && <tr><th>tests that pass only with it, only without it</th><td class="n">{count(edit.losses ?? 0)}</td><td class="n"><b>{count(edit.wins)}</b></td></tr>}
            {edit.e_value !== null && <tr><th>e-value: beyond 20 an error is less likely than 5%</th><td /><td class="n"><b>{edit.e_value.toPrecision(3)}</b></td></tr>}
          </tbody>
        </table>
      </section>
      <section class="sect">
        <h2>What it changes</h2>
        {edit.hunks.map((hunk, index) => <div key={index}><p class="mono foot">{hunk.path}</p><TextDiff before={hunk.old} after={hunk.new} name={`Change of ${hunk.path}`} /></div>)}
      </section>
    </>
  );
}

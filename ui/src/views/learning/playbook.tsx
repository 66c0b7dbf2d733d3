// One playbook: what it does, what it says, and how it changed.

import { useState } from "preact/hooks";
import { type ApiError, call, may } from "../../api";
import { count, counted, moment } from "../../format";
import { AnswerText } from "../../parts/answer_text";
import { CopyRequest } from "../../parts/copy";
import { EffectPlot, Exposures, points } from "../../parts/effect_plot";
import { Failure, useLoaded } from "../../parts/loading";
import { State } from "../../parts/state";
import { TextDiff } from "../../parts/text_diff";
import type { Listing } from "../../types";
import { STATE_SHAPES } from "./learning";
import type { Exposure, Playbook, PlaybookChange } from "./types";

export function PlaybookPage({ playbook, onChange }: { playbook: Playbook; onChange: () => void }) {
  const path = `/playbooks/${encodeURIComponent(playbook.name)}`;
  const history = useLoaded(async (abort) => (await call<Listing<PlaybookChange>>("GET", `${path}/history`, undefined, abort)).items, [playbook.name, playbook.state]);
  const tries = useLoaded(async (abort) => (await call<Listing<Exposure>>("GET", `${path}/exposures`, undefined, abort)).items, [playbook.name, playbook.version]);
  const [error, setError] = useState<ApiError | null>(null);
  const act = async (verb: "pin" | "retire") => {
    setError(null);
    try {
      await call("POST", `${path}/${verb}`);
      onChange();
    } catch (failed) {
      setError(failed as ApiError);
    }
  };
  const [low, high] = playbook.interval;
  return (
    <>
      <h1>{playbook.name}</h1>
      <div class="facts">
        <State shape={STATE_SHAPES[playbook.state]}>{playbook.state}</State>
        <span>version <b class="mono">{playbook.version.slice(0, 7)}</b></span>
        <span>matched <b>{counted(playbook.eligible, "run")}</b></span>
        <span>shown to <b>{count(playbook.shown)}</b></span>
      </div>
      {playbook.reason && <p class="note">{playbook.reason}</p>}
      {may("admin") && (
        <div class="acts foot">
          {playbook.state !== "pinned" && <button type="button" onClick={() => void act("pin")}>{playbook.state === "retired" ? "Bring back" : "Always show"}</button>}
          {playbook.state !== "retired" && <button type="button" class="halt" onClick={() => void act("retire")}>Retire</button>}
          <CopyRequest method="POST" path={`${path}/${playbook.state === "retired" ? "pin" : "retire"}`} />
        </div>
      )}
      {error && <Failure error={error} />}
      <section class="sect">
        <div class="hd">
          <h2>{low > 0 ? `It helps: ${points(playbook.effect)} points more right answers` : high < 0 ? `It harms: ${points(playbook.effect)} points` : "No certain effect yet"}</h2>
          <small>95% interval {points(low)} to {points(high)} · shown in {count(playbook.shown)} of {counted(playbook.eligible, "run")}, drawn by lot</small>
        </div>
        <EffectPlot effects={[{ label: "right answers", effect: playbook.effect, low, high }]} />
        {tries.data && <Exposures label="with it" outcomes={tries.data.filter((one) => one.shown).map((one) => one.success)} />}
        {tries.data && <Exposures label="without it" outcomes={tries.data.filter((one) => !one.shown).map((one) => one.success)} />}
      </section>
      <section class="sect">
        <h2>What it says</h2>
        <p class="lead">{playbook.description}</p>
        <div class="skill"><AnswerText text={playbook.text} /></div>
      </section>
      <section class="sect">
        <h2>How it changed</h2>
        {history.error && <Failure error={history.error} again={history.reload} />}
        {history.data && <Versions changes={history.data} />}
      </section>
    </>
  );
}

function Versions({ changes }: { changes: PlaybookChange[] }) {
  const texts = changes.filter((change) => change.text);
  const [compared, setCompared] = useState<string | null>(null);
  const at = texts.findIndex((change) => change.version === compared);
  return (
    <>
      <table>
        <thead><tr><th>when</th><th>version</th><th>what</th><th>why</th><th><span class="away">compare</span></th></tr></thead>
        <tbody>{changes.toReversed().map((change, index) => {
          const position = texts.indexOf(change);
          return (
            <tr key={index}>
              <td class="soft">{moment(change.at)}</td>
              <td class="mono">{change.version.slice(0, 7)}</td>
              <td>{change.change}</td>
              <td>{change.reason}</td>
              <td class="n">{position > 0 && <button type="button" class="link" aria-expanded={compared === change.version} onClick={() => setCompared(compared === change.version ? null : change.version)}>What changed</button>}</td>
            </tr>
          );
        })}</tbody>
      </table>
      {at > 0 && <TextDiff before={texts[at - 1]?.text ?? ""} after={texts[at]?.text ?? ""} name={`From ${texts[at - 1]?.version.slice(0, 7)} to ${compared?.slice(0, 7)}`} />}
    </>
  );
}

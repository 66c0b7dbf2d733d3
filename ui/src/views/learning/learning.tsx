// Learning: the playbooks that models are shown, drafts to decide on, edits of code, and findings.

import { call } from "../../api";
import { count, counted, moment } from "../../format";
import { EffectPlot } from "../../parts/effect_plot";
import { Failure, type Loaded, useLoaded, Waiting } from "../../parts/loading";
import { type Shape, State } from "../../parts/state";
import { link } from "../../router";
import type { Listing } from "../../types";
import { Curve } from "./curve";
import { DraftPage } from "./draft";
import { EditPage, EDIT_SHAPES } from "./edit";
import { PlaybookPage } from "./playbook";
import type { CurvePoint, Draft, Edit, Finding, Playbook } from "./types";

export const STATE_SHAPES: Record<Playbook["state"], Shape> = { pinned: "good", active: "good", probation: "ask", quarantined: "ask", retired: "off" };

export function LearningView({ kind, name }: { kind: string | null; name: string | null }) {
  const playbooks = useList<Playbook>("/playbooks?retired=true");
  const drafts = useList<Draft>("/learning/drafts");
  const edits = useList<Edit>("/learning/edits?limit=200");
  const shown = (playbooks.data ?? []).filter((one) => one.state !== "retired");
  const retired = (playbooks.data ?? []).filter((one) => one.state === "retired");
  const waiting = (drafts.data ?? []).filter((one) => one.state === "draft");
  const playbook = kind === "playbooks" ? playbooks.data?.find((one) => one.name === name) : undefined;
  const draft = kind === "drafts" ? drafts.data?.find((one) => one.name === name) : undefined;
  const edit = kind === "edits" ? edits.data?.find((one) => one.id === name) : undefined;
  const reload = () => {
    playbooks.reload();
    drafts.reload();
    edits.reload();
  };
  const failed = playbooks.error ?? drafts.error ?? edits.error;
  const ready = playbooks.data && drafts.data && edits.data;
  return (
    <div class="lay">
      <aside class="side" aria-label="What was learned">
        <h3><a href={link("learning")} aria-current={kind ? undefined : "page"}>Overview</a></h3>
        <Group title="Drafts" kind="drafts" items={waiting.map((one) => [one.name, one.name])} current={name} />
        <Group title="Shown to models" kind="playbooks" items={shown.map((one) => [one.name, one.name])} current={name} />
        <Group title="Retired" kind="playbooks" items={retired.map((one) => [one.name, one.name])} current={name} />
        <Group title="Edits" kind="edits" items={(edits.data ?? []).slice(0, 30).map((one) => [one.id, one.rationale])} current={name} />
      </aside>
      <main id="content" tabIndex={-1}>
        {failed && <><h1 class="away">Learning</h1><Failure error={failed} again={reload} /></>}
        {!failed && !ready && <><h1 class="away">Learning</h1><Waiting for="Reading what was learned" /></>}
        {ready && (
          playbook ? <PlaybookPage key={playbook.name} playbook={playbook} onChange={reload} />
          : draft ? <DraftPage key={draft.name} draft={draft} onChange={reload} />
          : edit ? <EditPage key={edit.id} edit={edit} onChange={reload} />
          : kind ? <><h1>Not here</h1><p class="lead">There is no {name} among the {kind}. It may have been renamed or decided on.</p></>
          : <Overview playbooks={shown} drafts={waiting} edits={edits.data ?? []} />
        )}
      </main>
    </div>
  );
}

function useList<T>(path: string): Loaded<T[]> {
  return useLoaded(async (abort) => (await call<Listing<T>>("GET", path, undefined, abort)).items, [path]);
}

function Group({ title, kind, items, current }: { title: string; kind: string; items: [string, string][]; current: string | null }) {
  if (items.length === 0) return null;
  return (
    <>
      <h3>{title}</h3>
      <ol>{items.map(([id, words]) => <li key={id} class={id === current ? "here" : ""}><a class="clip-2" href={link("learning", kind, id)} aria-current={id === current ? "page" : undefined}>{words}</a></li>)}</ol>
    </>
  );
}

function Overview({ playbooks, drafts, edits }: { playbooks: Playbook[]; drafts: Draft[]; edits: Edit[] }) {
  const findings = useList<Finding>("/learning/findings");
  const curve = useList<CurvePoint>("/learning/curve");
  const helps = playbooks.filter((one) => one.interval[0] > 0).length;
  const nothing = playbooks.length === 0 && drafts.length === 0 && edits.length === 0;
  const verdict = nothing ? "Nothing learned yet"
    : drafts.length ? `${counted(drafts.length, "draft")} ${drafts.length === 1 ? "waits" : "wait"} for you`
    : helps ? `${counted(helps, "playbook")} ${helps === 1 ? "helps" : "help"} for certain`
    : `${counted(playbooks.length, "playbook")}, no certain effect yet`;
  return (
    <>
      <h1>{verdict}</h1>
      {nothing && <p class="lead">A playbook is a lesson for models: when it applies and what to do. etude drafts one when questions keep leading to the same query, and you decide. Or add your own with <code>etude playbooks add</code>.</p>}
      {drafts.length > 0 && (
        <section class="sect">
          <h2>Drafts</h2>
          <ul class="finds">{drafts.map((draft) => (
            <li key={draft.name}><span class="sign me">◆</span><span>{draft.description}</span><a href={link("learning", "drafts", draft.name)}>Decide</a></li>
          ))}</ul>
        </section>
      )}
      {playbooks.length > 0 && (
        <section class="sect">
          <div class="hd"><h2>What playbooks do to the share of right answers</h2><small>shown or withheld by lot</small></div>
          <EffectPlot effects={playbooks.map((one) => ({ label: one.name, effect: one.effect, low: one.interval[0], high: one.interval[1] }))} />
        </section>
      )}
      {curve.data && curve.data.length > 1 && <section class="sect"><h2>The learning curve</h2><Curve points={curve.data} /></section>}
      {edits.length > 0 && (
        <section class="sect">
          <h2>Edits of code</h2>
          <div class="scroll" tabIndex={0} role="region" aria-label="Edits">
            <table>
              <thead><tr><th>edit</th><th>state</th><th class="n">before</th><th class="n">after</th><th>when</th></tr></thead>
              <tbody>{edits.map((edit) => (
                <tr key={edit.id}>
                  <th><a href={link("learning", "edits", edit.id)}>{edit.rationale}</a></th>
                  <td><State shape={EDIT_SHAPES[edit.status]}>{edit.status}</State></td>
                  <td class="n">{edit.score_before === null ? "" : `${Math.round(edit.score_before * 100)}%`}</td>
                  <td class="n">{edit.score_after === null ? "" : `${Math.round(edit.score_after * 100)}%`}</td>
                  <td class="soft">{moment(edit.created_at)}</td>
                </tr>
              ))}</tbody>
            </table>
          </div>
        </section>
      )}
      <section class="sect">
        <h2>Findings</h2>
        {findings.error && <Failure error={findings.error} again={findings.reload} />}
        {findings.data?.length === 0 && <p class="note">No failure has happened three times. If one does, its cause is named here.</p>}
        <ul class="finds">{(findings.data ?? []).map((finding) => (
          <li key={`${finding.kind}${finding.error_key}`}>
            <span class="sign me">◆</span>
            <span>
              {finding.diagnosis} {finding.suggestion}<br />
              <small>{count(finding.count)} of {counted(finding.of, finding.kind)}, last {moment(finding.last_at)}</small>
            </span>
            <span>{finding.evidence.filter((id) => id.startsWith("run_")).slice(0, 3).map((id) => <a key={id} class="mono" href={link("runs", id)}>{id.slice(-6)} </a>)}</span>
          </li>
        ))}</ul>
      </section>
    </>
  );
}

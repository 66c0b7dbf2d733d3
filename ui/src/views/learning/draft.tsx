// A draft of a playbook: read it, then accept or refuse it.

import { useState } from "preact/hooks";
import { type ApiError, call, may } from "../../api";
import { AnswerText } from "../../parts/answer_text";
import { CopyRequest } from "../../parts/copy";
import { Failure } from "../../parts/loading";
import { State } from "../../parts/state";
import { go, link } from "../../router";
import type { Draft } from "./types";

export function DraftPage({ draft, onChange }: { draft: Draft; onChange: () => void }) {
  const [error, setError] = useState<ApiError | null>(null);
  const [refusing, setRefusing] = useState(false);
  const path = `/learning/drafts/${encodeURIComponent(draft.name)}`;
  const decide = async (verb: "accept" | "refuse", reason = "") => {
    setError(null);
    try {
      await call("POST", `${path}/${verb}`, verb === "refuse" ? { reason } : undefined);
      onChange();
      go(verb === "accept" ? link("learning", "playbooks", draft.name) : link("learning"));
    } catch (failed) {
      setError(failed as ApiError);
    }
  };
  const refuse = (event: SubmitEvent) => {
    event.preventDefault();
    void decide("refuse", String(new FormData(event.currentTarget as HTMLFormElement).get("reason")).trim());
  };
  const body = draft.text.replace(/^---\n[\s\S]*?\n---\n/, "");
  return (
    <>
      <h1>{draft.name}</h1>
      <div class="facts"><State shape="ask">draft</State><span>written by the observer; no model reads it until you accept it</span></div>
      <p class="lead">{draft.description}</p>
      {may("admin") ? (
        <div class="acts">
          <button type="button" class="do" onClick={() => void decide("accept")}>Accept</button>
          <button type="button" aria-expanded={refusing} onClick={() => setRefusing(!refusing)}>Refuse…</button>
          <small>An accepted playbook can be retired at any time.</small>
          <CopyRequest method="POST" path={`${path}/accept`} />
        </div>
      ) : <p class="note">An administrator decides on drafts.</p>}
      {refusing && (
        <form class="acts foot" onSubmit={refuse}>
          <input name="reason" aria-label="Why it is refused" placeholder="Why, for whoever looks later" autoFocus autoComplete="off" />
          <button type="submit">Refuse it</button>
        </form>
      )}
      {error && <Failure error={error} />}
      <section class="sect"><h2>What it says</h2><div class="skill"><AnswerText text={body} /></div></section>
    </>
  );
}

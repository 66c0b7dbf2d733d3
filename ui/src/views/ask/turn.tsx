// One turn of a conversation: the question, the steps, the answer, and what can be done next.

import { useState } from "preact/hooks";
import { ApiError, call, may } from "../../api";
import { clock, count, counted, duration } from "../../format";
import { AnswerText } from "../../parts/answer_text";
import { Copy, CopyRequest } from "../../parts/copy";
import { Feedback } from "../../parts/feedback";
import { Failure, Waiting } from "../../parts/loading";
import { RepeatSign } from "../../parts/sign";
import { Words } from "../../parts/words";
import { link } from "../../router";
import type { LiveRun } from "../../events/use_run";
import { ENDED, type Figure, type Run, type Step } from "../../types";
import { Steps } from "./steps";

interface Props {
  question: string;
  at: string;
  live: LiveRun;
  onFigure: (run: Run, figure: Figure) => void;
  onFresh: (run: Run) => void;
  onEdit: (step: Step) => void;
  onBranch: () => void;
}

export function Turn({ question, at, live, onFigure, onFresh, onEdit, onBranch }: Props) {
  const { run, writing } = live;
  return (
    <article class="turn">
      <div class="m">
        <span class="t">{clock(at)}</span>
        <h2 class="q">{question}</h2>
      </div>
      {live.error && <Indented><Failure error={live.error} again={live.reload} /></Indented>}
      {!run && !live.error && <Indented><Waiting for="Reading the run" /></Indented>}
      {run && (
        <>
          {!isReplay(run) && <Steps run={run} onEdit={onEdit} />}
          {run.guidance.filter((guidance) => guidance.by === "user").map((guidance, index) => (
            <Indented key={index}><p class="note">You added: {guidance.text}</p></Indented>
          ))}
          <Indented>
            <Outcome run={run} writing={writing} onFigure={(figure) => onFigure(run, figure)} />
            {ENDED.has(run.status) && <After run={run} onFresh={() => onFresh(run)} onBranch={onBranch} />}
          </Indented>
        </>
      )}
    </article>
  );
}

function Indented({ children }: { children: preact.ComponentChildren }) {
  return (
    <div class="m">
      <span class="t" />
      <div>{children}</div>
    </div>
  );
}

export function isReplay(run: Run): boolean {
  return run.replay?.level === "replay" || run.replay?.level === "repair";
}

function Outcome({ run, writing, onFigure }: { run: Run; writing: string; onFigure: (figure: Figure) => void }) {
  if (run.status === "waiting") return <QuestionBack run={run} />;
  if (run.status === "failed")
    return <Failure error={new ApiError(run.error ?? { detail: "The run failed." }, 0)} />;
  if (run.status === "cancelled") return <p class="line-note">Stopped by you. What was computed until then is kept in the run.</p>;
  if (run.status === "paused") return <PausedNote run={run} />;
  if (run.status === "queued") return <p class="st wait">Queued</p>;
  const text = run.answer ?? writing;
  return (
    <>
      {text && <AnswerText text={text} figures={run.figures} unverified={run.unverified} writing={run.status === "running"} onFigure={onFigure} />}
      {!text && run.status === "running" && <p class="st run">Working</p>}
      {isReplay(run) && <ReplayStrip run={run} />}
      {run.unverified.length > 0 && (
        <p class="note">No result holds {run.unverified.length === 1 ? "this number" : "these numbers"}: {run.unverified.join(", ")}.</p>
      )}
      {run.notes.map((note) => <p class="note" key={note}><Words text={note} /></p>)}
    </>
  );
}

export function ReplayStrip({ run }: { run: Run }) {
  const replay = run.replay;
  if (!replay?.origin) return null;
  return (
    <div class="strip">
      <RepeatSign />
      <span>
        Answered by replaying run <a href={link("runs", replay.origin)} class="mono">{replay.origin.slice(-6)}</a>
      </span>
      <span>{counted(replay.guards, "guard")} passed</span>
      <span>0 tokens</span>
      <span><b>{duration(replay.elapsed_ms)}</b></span>
      {replay.reason && <span>{replay.reason}</span>}
    </div>
  );
}

function PausedNote({ run }: { run: Run }) {
  const resume = () => void call("POST", `/runs/${run.id}/resume`);
  if (run.paused_by === "answer") return <p class="st wait">Going on</p>;
  return (
    <p class="line-note">
      Paused. {may("analyst") && <button type="button" onClick={resume}>Resume</button>}
    </p>
  );
}

/** A question from etude: choices to click, or keys 1 to 9, or an answer in words. */
function QuestionBack({ run }: { run: Run }) {
  const [sent, setSent] = useState<string | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const answer = async (text: string) => {
    setSent(text);
    try {
      await call("POST", `/runs/${run.id}/answer`, { text });
    } catch (failed) {
      setSent(null);
      setError(failed as ApiError);
    }
  };
  return (
    <div class="question-back">
      <p class="st ask"><b>{run.question}</b></p>
      <div class="choices" role="group" aria-label="Choices">
        {run.choices.map((choice, index) => (
          <button type="button" key={choice} aria-pressed={sent === choice} disabled={sent !== null || !may("analyst")}
            data-choice={index + 1} onClick={() => answer(choice)}>
            {choice} <kbd>{index + 1}</kbd>
          </button>
        ))}
      </div>
      <form class="acts" onSubmit={(event) => {
        event.preventDefault();
        const text = String(new FormData(event.currentTarget as HTMLFormElement).get("text")).trim();
        if (text) void answer(text);
      }}>
        <input name="text" aria-label="Answer in words" placeholder="Answer in words" autoComplete="off" disabled={sent !== null} />
        <button type="submit" disabled={sent !== null || !may("analyst")}>Answer</button>
      </form>
      {error && <Failure error={error} />}
    </div>
  );
}

function After({ run, onFresh, onBranch }: { run: Run; onFresh: () => void; onBranch: () => void }) {
  const used = run.usage.tokens_in + run.usage.tokens_out;
  const took = run.ended_at ? Date.parse(run.ended_at) - Date.parse(run.created_at) : 0;
  const again = isReplay(run) ? "Ask afresh" : "Ask again";
  const body = { kind: run.kind, text: run.text, ...(run.source ? { dataset: run.source } : {}) };
  return (
    <>
      <div class="after">
        <a class="link" href={link("runs", run.id)}>Run</a>
        <a class="link" href={link("runs", run.id, { view: "script" })}>Script</a>
        {may("analyst") && <button type="button" class="link" onClick={onFresh}>{again}</button>}
        {may("analyst") && <button type="button" class="link" onClick={onBranch}>Branch</button>}
        {run.answer && <Copy text={run.answer}>Copy</Copy>}
        <Feedback run={run} />
        <CopyRequest method="POST" path="/runs" body={body} />
        <span class="push note">
          {duration(took)}{used ? ` · ${count(used)} tokens` : isReplay(run) ? "" : " · no model"}
        </span>
      </div>
    </>
  );
}

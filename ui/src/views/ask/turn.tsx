// One turn of a conversation: the question, the steps, the answer, and what can be done next.

import { useState } from "preact/hooks";
import { ApiError, call, may } from "../../api";
import { clock, count, counted, duration } from "../../format";
import { AnswerText } from "../../parts/answer_text";
import { ChooseModel } from "../../parts/choose_model";
import { Copy, CopyRequest } from "../../parts/copy";
import { Feedback } from "../../parts/feedback";
import { Failure, Waiting } from "../../parts/loading";
import { RepeatSign } from "../../parts/sign";
import { Words } from "../../parts/words";
import { conditionsOf, readingOf } from "../../reading";
import { link } from "../../router";
import type { LiveRun } from "../../events/use_run";
import { ENDED, type Figure, type Problem, type Run, type Step } from "../../types";
import { Steps } from "./steps";

interface Props {
  question: string;
  at: string;
  live: LiveRun;
  onFigure: (run: Run, figure: Figure) => void;
  onFresh: (run: Run) => void;
  onEdit: (step: Step) => void;
  onBranch: () => void;
  /** Asks a question that etude suggests. */
  onAsk?: ((text: string) => void) | undefined;
  /** Shows the results of this turn beside the conversation; without it they are elsewhere. */
  onShow?: ((run: Run, opened: boolean) => void) | undefined;
  /** Whether these results are shown now. */
  shown?: boolean;
  /** A chart below the answer, on screens too narrow for one beside it. */
  children?: preact.ComponentChildren;
}

export function Turn({ question, at, live, onFigure, onFresh, onEdit, onBranch, onAsk, onShow, shown = false, children }: Props) {
  const { run, writing } = live;
  const show = run && onShow && ENDED.has(run.status) ? (opened: boolean) => onShow(run, opened) : null;
  // The button below the answer does the same for the keyboard.
  const click = (event: MouseEvent) => {
    const part = event.target instanceof Element ? event.target : null;
    const opens = part?.closest(".sum button") != null;
    if (show && !shown && (opens || (!part?.closest("a, button, input, form, .chart, pre") && !getSelection()?.toString()))) show(false);
  };
  return (
    <article class={`turn${shown ? " shown" : ""}${show ? " shows" : ""}`} data-run={run?.id} aria-current={shown ? "true" : undefined} onClick={click}>
      <div class="m">
        <span class="t">{clock(at)}</span>
        <h2 class="q">{question}</h2>
      </div>
      {live.error && <Indented><Failure error={live.error} again={live.reload} /></Indented>}
      {!run && !live.error && <Indented><Waiting for="Reading the run" /></Indented>}
      {run && (
        <>
          <Steps run={run} onEdit={onEdit} />
          {run.guidance.filter((guidance) => guidance.by === "user").map((guidance, index) => (
            <Indented key={index}><p class="note">You added: {guidance.text}</p></Indented>
          ))}
          <Indented>
            <Outcome run={run} writing={writing} onFigure={(figure) => onFigure(run, figure)} onAsk={onAsk} />
            {children}
            {ENDED.has(run.status) && <After run={run} onFresh={() => onFresh(run)} onBranch={onBranch} onShow={show && (() => show(true))} shown={shown} />}
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

interface OutcomeProps {
  run: Run;
  writing: string;
  onFigure: (figure: Figure) => void;
  onAsk: ((text: string) => void) | undefined;
}

function Outcome({ run, writing, onFigure, onAsk }: OutcomeProps) {
  if (run.status === "waiting") return <QuestionBack run={run} />;
  if (run.status === "failed" && run.error?.code === "not_understood") return <NotUnderstood problem={run.error} rules={run.model === "offline"} onAsk={onAsk} />;
  if (run.status === "failed")
    return <Failure error={new ApiError(run.error ?? { detail: "The run failed." }, 0)} />;
  if (run.status === "cancelled") return <p class="line-note">Stopped by you. What was computed until then is kept in the run.</p>;
  if (run.status === "paused") return <PausedNote run={run} />;
  if (run.status === "queued") return <p class="st wait">Queued</p>;
  const text = run.answer ?? writing;
  const conditions = conditionsOf(readingOf(run));
  return (
    <>
      {text && <AnswerText text={text} figures={run.figures} unverified={run.unverified} writing={run.status === "running"} onFigure={onFigure}
        under={run.answer && conditions && !run.answer.includes(conditions) && <p class="note conditions-said">Only {conditions}.</p>} />}
      {!text && run.status === "running" && <p class="st run">Working</p>}
      {isReplay(run) && <ReplayStrip run={run} />}
      {run.unverified.length > 0 && (
        <p class="note">Could not be traced to the results: {run.unverified.join(", ")}.</p>
      )}
      {run.notes.map((note) => <p class="note" key={note}><Words text={note} /></p>)}
    </>
  );
}

/** A question that was not understood, with questions that work: a click asks one. */
function NotUnderstood({ problem, rules, onAsk }: { problem: Problem; rules: boolean; onAsk: ((text: string) => void) | undefined }) {
  const suggestions = problem.suggestions ?? [];
  return (
    <div class="unclear" role="alert">
      <p class="says2"><Words text={problem.detail ?? "The question is not clear."} /></p>
      {suggestions.length === 0 && problem.hint && <p><Words text={problem.hint} /></p>}
      {suggestions.length > 0 && (
        <>
          <p>Try one of these:</p>
          <ul class="tries" aria-label="Questions to try">
            {suggestions.map((text) => (
              <li key={text}>{onAsk && may("analyst") ? <button type="button" onClick={() => onAsk(text)}>{text}</button> : text}</li>
            ))}
          </ul>
        </>
      )}
      {rules && <ChooseModel />}
    </div>
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
      <p class="st ask"><b><Words text={run.question ?? ""} /></b></p>
      <div class="choices" role="group" aria-label="Choices">
        {run.choices.map((choice, index) => (
          <button type="button" key={choice} aria-pressed={sent === choice} disabled={sent !== null || !may("analyst")}
            data-choice={index + 1} onClick={() => answer(choice)}>
            <Words text={choice} /> <kbd>{index + 1}</kbd>
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

interface AfterProps {
  run: Run;
  onFresh: () => void;
  onBranch: () => void;
  onShow: (() => void) | null;
  shown: boolean;
}

function After({ run, onFresh, onBranch, onShow, shown }: AfterProps) {
  const used = run.usage.tokens_in + run.usage.tokens_out;
  const took = run.ended_at ? Date.parse(run.ended_at) - Date.parse(run.created_at) : 0;
  const again = isReplay(run) ? "Ask afresh" : "Ask again";
  const body = { kind: run.kind, text: run.text, ...(run.source ? { dataset: run.source } : {}) };
  return (
    <>
      <div class="after">
        {onShow && run.result && (
          <button type="button" class="link show" aria-pressed={shown} title={shown ? "This result is shown" : "Show this result"} onClick={onShow}>
            {run.chart ? "Chart and " : ""}{counted(run.result.row_count, "row")}
          </button>
        )}
        {onShow && <a class="link" href={link("runs", run.id)}>Run</a>}
        {onShow && <a class="link" href={link("runs", run.id, { view: "script" })}>Script</a>}
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

// Ask: threads on the left, the conversation, and what its answers rest on.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { ApiError, call, isTyping, may } from "../../api";
import { useRun } from "../../events/use_run";
import { count, counted } from "../../format";
import { Chart } from "../../parts/chart";
import { Failure, useLoaded } from "../../parts/loading";
import { useMedia } from "../../parts/media";
import { conditionsOf, readingOf } from "../../reading";
import { go, link } from "../../router";
import { type Dataset, ENDED, type Figure, type Listing, type Message, type Run, type Step, type Thread } from "../../types";
import { useAdding, useFileDrop } from "../start/add_data";
import { StartView } from "../start/start";
import { Composer, type Draft } from "./composer";
import { ResultPane, resultsOf } from "./result_pane";
import { Threads } from "./threads";
import { Turn } from "./turn";
import { useKeptInView } from "./kept_in_view";
import { Welcome } from "./welcome";

interface Props {
  threadId: string | null;
  /** Whether data is to be added first. */
  starting?: boolean;
  /** A question to begin with, and the data it is about. */
  asked?: string | null;
  about?: string | null;
  /** The run whose results are shown; else those of the last question. */
  turn?: string | null;
}

const PHONE = "(max-width: 46rem)";

export function AskView({ threadId, starting = false, asked: given = null, about = null, turn = null }: Props) {
  const threads = useLoaded((abort) => call<Listing<Thread>>("GET", "/threads?limit=100", undefined, abort), [threadId]);
  const datasets = useLoaded((abort) => call<Listing<Dataset>>("GET", "/datasets", undefined, abort), []);
  const messages = useLoaded(
    async (abort) => (threadId ? (await call<Listing<Message>>("GET", `/threads/${threadId}/messages?limit=1000`, undefined, abort)).items : []),
    [threadId],
  );
  const [chosenDataset, setDataset] = useState<string | null>(about);
  const [draft, setDraft] = useState<Draft>({ text: given ?? "", language: "words" });
  const [error, setError] = useState<ApiError | null>(null);
  const [figure, setFigure] = useState<Figure | null>(null);
  const [runs, setRuns] = useState<Record<string, Run>>({});
  const [pane, setPane] = useState<"talk" | "result">("talk");
  const [listing, setListing] = useState(false);
  const phone = useMedia(PHONE);
  const { box, keep, place } = useKeptInView(phone);

  const asked = (messages.data ?? []).filter((message) => message.role === "user" && message.run_id !== null);
  const last = asked.at(-1)?.run_id ?? null;
  const lastRun = last ? (runs[last] ?? null) : null;
  const working = lastRun !== null && !ENDED.has(lastRun.status) && lastRun.status !== "waiting";
  const hasResult = (id: string | null) => id !== null && runs[id] !== undefined && resultsOf(runs[id]).length > 0;
  const earlier = asked.findLast((message) => hasResult(message.run_id))?.run_id ?? null;
  // While a question is being answered the result before it stays; a question that ended without one shows none.
  const settled = lastRun !== null && ENDED.has(lastRun.status);
  const selected = turn !== null && asked.some((message) => message.run_id === turn) ? turn : null;
  const shown = runs[selected ?? (settled ? last : (earlier ?? last)) ?? ""] ?? null;
  const thread = threads.data?.items.find((known) => known.id === threadId);
  const dataset = chosenDataset ?? thread?.source ?? datasets.data?.items[0]?.id ?? null;
  /** Show the results of a turn, and name it in the address; the last one needs no name. */
  const select = (id: string | null) => {
    if (threadId) go(link("ask", threadId, { turn: id === last ? null : id }), true);
  };

  const adding = useAdding((added) => {
    setDataset(added.name);
    datasets.reload();
  });
  const start = !threadId && (starting || datasets.data?.items.length === 0);
  const over = useFileDrop((files) => void adding.addFiles(files), may("analyst") && !start);

  useEffect(() => {
    if (about) setDataset(about);
    if (given) setDraft({ text: given, language: "words" });
  }, [about, given]);
  useEffect(() => {
    setFigure(null);
    setError(null);
    setPane("talk");
    setListing(false);
    keep(turn ?? "end");
  }, [threadId]);
  useLayoutEffect(place, [asked.length]);
  useLayoutEffect(() => {
    if (!phone) return;
    if (pane === "result") scrollTo({ top: 0, behavior: "instant" });
    else keep(selected ?? "end");
  }, [pane]);
  useEffect(() => {
    document.title = thread ? `${thread.title} · etude` : "Ask · etude";
  }, [thread]);
  const step = useRef((_by: number) => {});
  step.current = (by) => {
    const ended = asked.flatMap(({ run_id: id }) => (id !== null && runs[id] && ENDED.has(runs[id].status) ? [id] : []));
    const next = ended[ended.indexOf(shown?.id ?? "") + by];
    if (next === undefined) return;
    setFigure(null);
    select(next);
    keep(next);
  };
  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      if (event.altKey && event.key === "n") {
        event.preventDefault();
        go(link("ask"));
      }
      if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
        event.preventDefault();
        step.current(event.key === "ArrowUp" ? -1 : 1);
      }
      if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
      const choice = /^[1-9]$/.test(event.key) ? document.querySelector<HTMLButtonElement>(`[data-choice="${event.key}"]`) : null;
      if (choice) {
        event.preventDefault();
        choice.click();
      } else if (/^\p{L}$/u.test(event.key) && !(event.target instanceof Element && event.target.closest("[role=grid], dialog"))) {
        document.getElementById("composer")?.focus(); // what a person types goes into the question
      }
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);

  const attempt = async (work: () => Promise<void>): Promise<boolean> => {
    setError(null);
    try {
      await work();
      return true;
    } catch (failed) {
      setError(failed instanceof ApiError ? failed : new ApiError({ detail: String(failed) }, 0));
      return false;
    }
  };
  const ask = (text: string, fresh = false, about = dataset) =>
    attempt(async () => {
      const body = { kind: "ask", text, fresh, ...(threadId ? { thread_id: threadId } : {}), ...(about ? { dataset: about } : {}) };
      const state = await call<{ id: string }>("POST", "/runs", body);
      const run = await call<Run>("GET", `/runs/${state.id}`);
      setFigure(null);
      setPane("talk");
      keep("end");
      if (run.thread_id && run.thread_id !== threadId) go(link("ask", run.thread_id));
      else {
        select(null);
        messages.reload();
      }
    });
  const steer = (text: string) => attempt(async () => void (await call("POST", `/runs/${last}/steer`, { guidance: text })));
  const stop = () => void attempt(async () => void (await call("POST", `/runs/${last}/cancel`)));
  const branch = (seq: number) =>
    void attempt(async () => {
      const copy = await call<Thread>("POST", `/threads/${threadId}/fork`, { until: seq });
      go(link("ask", copy.id));
    });
  const removeThread = (id: string) =>
    attempt(async () => {
      await call("DELETE", `/threads/${id}`);
      if (id === threadId) go(link("ask"));
      else threads.reload();
    });
  const edit = (step: Step) => {
    setDraft({ text: step.code, language: step.kind === "python" ? "python" : "sql" });
    document.getElementById("composer")?.focus();
  };
  const rows = shown?.result?.row_count;
  if (start && datasets.data) return <StartView datasets={datasets.data.items} onAdded={datasets.reload} />;
  return (
    <div class={`ask-view show-${pane}${over ? " over" : ""}${listing ? " listing" : ""}`}
      onKeyDown={(event) => { if (listing && event.key === "Escape") setListing(false); }}>
      <Threads threads={threads.data?.items ?? []} current={threadId} onRemove={removeThread} />
      <nav class="switch" aria-label="Threads, conversation and result">
        <button type="button" class="link names" aria-expanded={listing} onClick={() => setListing(!listing)}>
          <span class="clip">{listing ? "Close the list" : threadId ? (thread?.title ?? "Threads") : "Threads"}</span>{!listing && " ▾"}
        </button>
        <div class="seg">
          <button type="button" aria-pressed={pane === "talk"} onClick={() => setPane("talk")}>Conversation</button>
          <button type="button" aria-pressed={pane === "result"} onClick={() => setPane("result")}>
            Result{rows === undefined ? "" : ` · ${count(rows)}`}
          </button>
        </div>
      </nav>
      <main id="content" class="talk" tabIndex={-1}>
        {threadId && <h1 class="away">{thread?.title ?? "Conversation"}</h1>}
        <div class="flow" aria-live="polite" aria-busy={working}><div ref={box}>
          {threads.error && <Failure error={threads.error} again={threads.reload} />}
          {messages.error && <Failure error={messages.error} again={messages.reload} />}
          {over && <p class="line-note drop-note">Let go to add it to your data.</p>}
          {adding.busy && <p class="note busy" role="status">{adding.busy} …</p>}
          {adding.error && <Failure error={adding.error} />}
          {adding.added[0] && <p class="line-note ok">{adding.added[0].name} is ready: {counted(adding.added[0].tables.reduce((sum, table) => sum + (table.rows ?? 0), 0), "row")}. Ask it below.</p>}
          {!threadId && datasets.data && <Welcome dataset={dataset} onAsk={(text) => void ask(text)} />}
          {threadId && asked.map((message) => (
            <LiveTurn key={message.id} message={message}
              onRun={(run) => setRuns((before) => (before[run.id] === run ? before : { ...before, [run.id]: run }))}
              onFigure={(run, found) => { select(run.id); setFigure(found); setPane("result"); }}
              onShow={(run, opened) => { setFigure(null); select(run.id); if (opened) setPane("result"); }} onAsk={(text) => void ask(text, false, runs[message.run_id ?? ""]?.source ?? dataset)}
              shown={asked.length > 1 && shown !== null && shown.id === message.run_id}
              drawn={phone && pane === "talk" && message.run_id !== null && (message.run_id === last || message.run_id === shown?.id)}
              onFresh={(run) => void ask(message.text, run !== null)} onEdit={edit} onBranch={() => branch(message.seq)} />
          ))}
          {error && <div class="m"><span class="t" /><Failure error={error} /></div>}
        </div></div>
        <Composer working={working} datasets={datasets.data?.items ?? []} dataset={dataset} onDataset={setDataset} draft={draft}
          setDraft={setDraft} onSend={(text) => ask(text)} onSteer={steer} onStop={stop} />
      </main>
      <ResultPane key={shown?.id ?? ""} run={shown} figure={figure} onFigure={setFigure}
        of={shown !== null && shown.id !== last ? shown.text : null} onLatest={selected !== null && selected !== last ? () => select(null) : null}
        onEarlier={earlier !== null && shown !== null && shown.id !== earlier && !hasResult(shown.id) ? () => select(earlier) : null} />
    </div>
  );
}

interface LiveTurnProps {
  message: Message;
  onRun: (run: Run) => void;
  onFigure: (run: Run, figure: Figure) => void;
  onShow: (run: Run, opened: boolean) => void;
  onAsk: (text: string) => void;
  onFresh: (run: Run) => void;
  onEdit: (step: Step) => void;
  onBranch: () => void;
  shown: boolean;
  /** Whether its chart is drawn below the answer. */
  drawn: boolean;
}

function LiveTurn({ message, onRun, drawn, ...acts }: LiveTurnProps) {
  const live = useRun(message.run_id);
  useEffect(() => {
    if (live.run) onRun(live.run);
  }, [live.run]);
  const first = live.run?.chart ? resultsOf(live.run)[0] : undefined;
  return (
    <Turn question={message.text} at={message.created_at} live={live} {...acts}>
      {drawn && live.run?.chart && first && <Chart spec={live.run.chart} info={first.info} path={first.path} conditions={conditionsOf(readingOf(live.run))} />}
    </Turn>
  );
}

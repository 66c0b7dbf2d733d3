// fold(entries): the state of a run after the entries of its log. It is the same as `etude.events.fold`; both are run
// on the logs in `ui/tests/logs.json`, so the page never shows another state than the other surfaces.

import type { Entry, Guidance, Replay, Run, RunStatus, Step, Usage, Verdict } from "../types";

/** An entry does not follow from those before it. */
export class FoldConflict extends Error {}

const NO_USAGE: Usage = { tokens_in: 0, tokens_cached: 0, tokens_out: 0, model_calls: 0, cost_usd: 0 };

const ALIVE: readonly RunStatus[] = ["queued", "running", "paused", "waiting"];
const ALLOWED: Record<string, readonly RunStatus[]> = {
  "run.started": ["queued"],
  "run.paused": ["queued", "running"],
  "run.resumed": ["paused", "waiting"],
  "run.waiting": ["running"],
  "run.answered": ["waiting"],
  "run.requested": ALIVE,
  guided: ALIVE,
  "run.finished": ["running"],
  "run.failed": ALIVE,
  "run.cancelled": ALIVE,
  "step.started": ["running"],
  "step.finished": ["running"],
  "text.delta": ["running"],
};
const HEAD = new Set(["run_id", "seq", "at", "type"]);

/** A run while entries are folded into it. Steps change in place; `run()` returns a copy that later entries leave alone. */
export class Folding {
  private state: Run | null;
  private readonly open = new Map<string, number>();
  /** The text that the model is writing, by step, until the step has ended. */
  readonly writing = new Map<string, string>();

  constructor(run: Run | null = null) {
    this.state = run === null ? null : { ...run, steps: [...run.steps], usage: { ...run.usage } };
    run?.steps.forEach((step, index) => step.ended_at === null && this.open.set(step.id, index));
  }

  get seq(): number {
    return this.state?.seq ?? 0;
  }

  run(): Run {
    if (this.state === null) throw new FoldConflict("A run has at least one event.");
    return { ...this.state, steps: [...this.state.steps] };
  }

  add(entry: Entry): void {
    if (this.state === null) {
      if (entry.type !== "run.queued" || entry.seq !== 1)
        throw new FoldConflict(`The first event of ${entry.run_id} must be run.queued, not ${entry.type}.`);
      this.state = { ...emptyRun(entry), ...fields(entry) } as Run;
      return;
    }
    const run = this.state;
    if (entry.seq !== run.seq + 1) throw new FoldConflict(`Run ${run.id} is at ${run.seq}: ${entry.seq} does not follow.`);
    if (entry.type === "run.queued") throw new FoldConflict(`Run ${run.id} is queued already.`);
    const allowed = ALLOWED[entry.type];
    if (allowed !== undefined && !allowed.includes(run.status))
      throw new FoldConflict(`Run ${run.id} is ${run.status}: ${entry.type} cannot follow.`);
    this.change(run, entry);
    run.seq = entry.seq;
  }

  private change(run: Run, entry: Entry): void {
    switch (entry.type) {
      case "run.started":
        Object.assign(run, { status: "running", worker: entry.worker, started_at: entry.at });
        break;
      case "run.resumed":
        Object.assign(run, { status: "running", worker: entry.worker, requested: null });
        break;
      case "run.paused":
        Object.assign(run, { status: "paused", worker: null, requested: null, paused_by: entry.by });
        break;
      case "run.waiting": {
        const { question, choices, call } = entry;
        Object.assign(run, { status: "waiting", worker: null, reply: null, question, choices, call });
        break;
      }
      case "run.answered":
        Object.assign(run, { status: "paused", paused_by: "answer", reply: entry.text });
        break;
      case "run.requested":
        if (entry.what !== "interrupt") run.requested = entry.what as Run["requested"];
        break;
      case "guided":
        run.guidance = [...run.guidance, { ...fields(entry), after: run.steps.length } as unknown as Guidance];
        break;
      case "run.finished": {
        const { result, answer, code, chart, unverified, shown, figures } = entry;
        const made = { result, answer, code, chart, unverified, shown, figures };
        Object.assign(run, made, { status: "succeeded", ended_at: entry.at, result_artifact: entry.artifact });
        break;
      }
      case "run.failed":
        Object.assign(run, { status: "failed", ended_at: entry.at, error: entry.error });
        break;
      case "run.cancelled":
        Object.assign(run, { status: "cancelled", ended_at: entry.at });
        break;
      case "step.started":
        this.startStep(run, entry);
        break;
      case "step.finished":
        this.finishStep(run, entry);
        break;
      case "text.delta": {
        const step = entry.step_id as string;
        this.writing.set(step, (entry.restart ? "" : (this.writing.get(step) ?? "")) + (entry.text as string));
        break;
      }
      case "artifact.created":
        run.artifacts = [...run.artifacts, entry.artifact as Run["artifacts"][number]];
        break;
      case "replay.decided":
        run.replay = fields(entry) as unknown as Replay;
        break;
      case "script.compiled":
        run.script = entry.script as string | null;
        break;
      case "run.judged":
        run.feedback = fields(entry) as unknown as Verdict;
        break;
      case "note":
        run.notes = [...run.notes, entry.text as string];
        break;
      default:
        throw new FoldConflict(`The event ${entry.type} is unknown. Reload the page: the server may be newer.`);
    }
  }

  private startStep(run: Run, entry: Entry): void {
    const { step_id, ...rest } = fields(entry);
    this.open.set(step_id as string, run.steps.length);
    run.steps.push({ ...emptyStep(), ...rest, id: step_id, started_at: entry.at } as Step);
  }

  private finishStep(run: Run, entry: Entry): void {
    const { step_id, ...rest } = fields(entry);
    const position = this.open.get(step_id as string);
    const step = position === undefined ? undefined : run.steps[position];
    if (position === undefined || step === undefined)
      throw new FoldConflict(`Run ${run.id} has no open step ${String(step_id)}.`);
    this.open.delete(step.id);
    this.writing.delete(step.id);
    const versions = { ...step.versions, ...(entry.versions as Record<string, string>) };
    run.steps[position] = { ...step, ...rest, versions, ended_at: entry.at } as Step;
    run.usage = add(run.usage, entry.usage as Usage);
  }
}

export function fold(entries: Iterable<Entry>, run: Run | null = null): Run {
  const folding = new Folding(run);
  for (const entry of entries) folding.add(entry);
  return folding.run();
}

function fields(entry: Entry): Record<string, unknown> {
  return Object.fromEntries(Object.entries(entry).filter(([name]) => !HEAD.has(name)));
}

function add(one: Usage, other: Usage): Usage {
  const sum = { ...one };
  for (const [name, value] of Object.entries(other)) sum[name] = (sum[name] ?? 0) + value;
  return sum;
}

function emptyRun(entry: Entry): Run {
  return {
    id: entry.run_id,
    kind: "ask",
    text: "",
    source: null,
    thread_id: null,
    parent: null,
    location: null,
    model: null,
    budget: null,
    limits: null,
    params: {},
    worker: null,
    status: "queued",
    requested: null,
    paused_by: "",
    seq: 1,
    created_at: entry.at,
    started_at: null,
    ended_at: null,
    steps: [],
    artifacts: [],
    result: null,
    result_artifact: null,
    answer: null,
    code: null,
    chart: null,
    unverified: [],
    shown: [],
    figures: [],
    guidance: [],
    question: null,
    choices: [],
    call: "",
    reply: null,
    error: null,
    usage: { ...NO_USAGE },
    notes: [],
    replay: null,
    script: null,
    feedback: null,
  };
}

function emptyStep(): Omit<Step, "id" | "started_at"> {
  return {
    kind: "sql",
    code: "",
    dialect: null,
    source: null,
    parent: null,
    params: {},
    plan: null,
    seed: null,
    versions: {},
    schema_fingerprint: null,
    limits: null,
    estimate: null,
    ended_at: null,
    outcome: null,
    reads: [],
    result: null,
    artifact: null,
    error: null,
    error_key: null,
    elapsed_ms: null,
    usage: { ...NO_USAGE },
    turn: null,
    shown: null,
  };
}

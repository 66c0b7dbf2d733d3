// The entities that the HTTP API sends, as far as the page reads them. `src/etude/entities.py` defines them.

export type RunKind = "sql" | "plan" | "python" | "ask" | "catalog";
export type RunStatus = "queued" | "running" | "paused" | "waiting" | "succeeded" | "failed" | "cancelled";
export type StepKind = "sql" | "python" | "model" | "tool";
export type Outcome = "ok" | "error" | "refused" | "limit" | "cancelled";
export const ENDED: ReadonlySet<RunStatus> = new Set(["succeeded", "failed", "cancelled"]);

export interface Problem {
  title?: string;
  detail?: string;
  hint?: string;
  code?: string;
  status?: number;
  run_id?: string;
  /** Questions that would be understood. */
  suggestions?: string[];
}

export interface ResultColumn {
  name: string;
  type: string;
}

export interface ResultInfo {
  columns: ResultColumn[];
  row_count: number;
  truncated: boolean;
  bytes: number;
}

export interface Artifact {
  hash: string;
  media: string;
  size: number;
}

export interface Usage {
  tokens_in: number;
  tokens_cached: number;
  tokens_out: number;
  model_calls: number;
  cost_usd: number;
  [field: string]: number;
}

export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

export interface Turn {
  text: string;
  calls: ToolCall[];
  stop: string;
}

export interface Read {
  source: string;
  table: string;
  fingerprint: string | null;
}

export interface Step {
  id: string;
  kind: StepKind;
  code: string;
  dialect: string | null;
  source: string | null;
  parent: string | null;
  params: Record<string, unknown>;
  plan: Record<string, unknown> | null;
  seed: number | null;
  versions: Record<string, string>;
  schema_fingerprint: string | null;
  limits: Record<string, unknown> | null;
  estimate: Record<string, number | null> | null;
  started_at: string;
  ended_at: string | null;
  outcome: Outcome | null;
  reads: Read[];
  result: ResultInfo | null;
  artifact: Artifact | null;
  error: Problem | null;
  error_key: string | null;
  elapsed_ms: number | null;
  usage: Usage;
  turn: Turn | null;
  shown: string | null;
}

export interface Figure {
  start: number;
  end: number;
  text: string;
  value: string;
  result: string;
  expression: string;
}

export interface ShownResult {
  id: string;
  step_id: string;
  result: ResultInfo;
  artifact: Artifact;
}

export interface Guidance {
  text: string;
  by: "user" | "check" | "chart" | "origins" | "budget";
  interrupts: boolean;
  after: number;
}

export interface Replay {
  level: "replay" | "repair" | "example" | "scratch" | "shadow";
  cause: string;
  reason: string;
  script: string | null;
  origin: string | null;
  origin_at: string | null;
  guards: number;
  parameters: Record<string, string>;
  tokens_saved: number;
  elapsed_ms: number;
  reading: string;
  agrees: boolean | null;
  similar: string;
}

export interface Run {
  id: string;
  kind: RunKind;
  text: string;
  source: string | null;
  thread_id: string | null;
  parent: string | null;
  location: string | null;
  model: string | null;
  budget: Record<string, number> | null;
  limits: Record<string, unknown> | null;
  params: Record<string, unknown>;
  worker: string | null;
  status: RunStatus;
  requested: "pause" | "cancel" | null;
  paused_by: string;
  seq: number;
  created_at: string;
  started_at: string | null;
  ended_at: string | null;
  steps: Step[];
  artifacts: Artifact[];
  result: ResultInfo | null;
  result_artifact: Artifact | null;
  answer: string | null;
  code: string | null;
  chart: ChartSpec | null;
  unverified: string[];
  shown: ShownResult[];
  figures: Figure[];
  guidance: Guidance[];
  question: string | null;
  choices: string[];
  call: string;
  reply: string | null;
  error: Problem | null;
  usage: Usage;
  notes: string[];
  replay: Replay | null;
  script: string | null;
  feedback: Verdict | null;
}

/** What a person said about an answer. */
export interface Verdict {
  verdict: "right" | "wrong";
  comment: string;
  by: string;
  suspended: string[];
}

export interface ChartSpec {
  mark?: string | { type?: string };
  encoding?: Record<string, { field?: string; type?: string; title?: string } | undefined>;
  title?: string | { text?: string };
  [key: string]: unknown;
}

export interface RunSummary {
  id: string;
  kind: RunKind;
  text: string;
  source: string | null;
  thread_id: string | null;
  status: RunStatus;
  created_at: string;
  ended_at: string | null;
  row_count: number | null;
  truncated: boolean;
  error_code: string | null;
  elapsed_ms: number | null;
  usage: Usage;
}

export interface Listing<T> {
  items: T[];
  next: string | null;
}

export interface Thread {
  id: string;
  title: string;
  source: string | null;
  created_at: string;
  updated_at: string;
}

export interface Message {
  id: string;
  thread_id: string;
  seq: number;
  role: "user" | "assistant" | "system";
  text: string;
  run_id: string | null;
  created_at: string;
}

export interface Dataset {
  id: string;
  kind: string;
  tables: string[] | null;
  /** Whether it was added over HTTP, and can be removed there. */
  removable: boolean;
}

export interface RowPage {
  run_id: string | null;
  columns: ResultColumn[];
  rows: unknown[][];
  row_count: number;
  offset: number;
  next: number | null;
  truncated: boolean;
  elapsed_ms: number;
  notes: string[];
}

export interface SourceTable {
  name: string;
  kind: "table" | "view";
  columns: { name: string; type: string; nullable: boolean; comment: string | null }[];
  primary_key: string[];
  foreign_keys: { columns: string[]; to_table: string; to_columns: string[] }[];
  comment: string | null;
  row_count: number | null;
}

export interface SourceSchema {
  source: string;
  kind: string;
  dialect: string;
  tables: SourceTable[];
  notes: string[];
  warnings: string[];
}

export interface Session {
  tenant: string;
  role: "reader" | "analyst" | "admin" | null;
  key: string | null;
  csrf: string | null;
  keys: boolean;
}

/** One entry of a run's log, flat, as `/runs/{id}/events` streams it. */
export interface Entry {
  run_id: string;
  seq: number;
  at: string;
  type: string;
  [field: string]: unknown;
}

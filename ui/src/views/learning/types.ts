// What the API tells about learning.

export interface Playbook {
  name: string;
  description: string;
  text: string;
  version: string;
  state: "pinned" | "active" | "probation" | "quarantined" | "retired";
  reason: string;
  eligible: number;
  shown: number;
  effect: number;
  interval: [number, number];
}

export interface PlaybookChange {
  version: string;
  change: "added" | "edited" | "admitted" | "promoted" | "pinned" | "retired" | "quarantined";
  reason: string;
  at: string;
  /** The whole SKILL.md of this version, if the change made one. */
  text: string;
}

/** One run that a playbook matched, and what came of it. */
export interface Exposure {
  run_id: string;
  shown: boolean;
  success: boolean;
  /** Why it was a candidate. */
  why: string;
}

export interface Draft {
  name: string;
  description: string;
  text: string;
  state: "draft" | "refused";
}

export interface Edit {
  id: string;
  repo: string;
  proposer: string;
  status: "refused" | "dropped" | "proposed" | "merged" | "reverted";
  created_at: string;
  rationale: string;
  reason: string;
  hunks: { path: string; old: string; new: string }[];
  score_before: number | null;
  score_after: number | null;
  wins: number | null;
  losses: number | null;
  e_value: number | null;
  facts: Record<string, unknown>;
}

export interface CurvePoint {
  at: string;
  repo: string;
  stage: string;
  edit_id: string | null;
  passed: number;
  total: number;
  interval: [number, number];
}

export interface Finding {
  kind: string;
  error_key: string;
  count: number;
  of: number;
  first_at: string;
  last_at: string;
  diagnosis: string;
  suggestion: string;
  evidence: string[];
}

// The actions of an agent that are in the queue: what it will do next, and what failed.

import { useState } from "preact/hooks";
import { type ApiError, call, may } from "../api";
import { count, when } from "../format";
import { Failure } from "../parts/loading";
import { type Shape, State } from "../parts/state";

export interface Action {
  id: string;
  kind: string;
  payload: unknown;
  state: string;
  attempts: number;
  max_attempts: number;
  last_error: string | null;
  run_after: string | null;
}

const SHAPES: Record<string, Shape> = { ready: "wait", delayed: "wait", running: "run", failed: "bad" };

export function AgentActions({ actions, onChange }: { actions: Action[]; onChange: () => void }) {
  const [error, setError] = useState<ApiError | null>(null);
  const shown = actions.filter((action) => action.state in SHAPES);
  const act = async (id: string, verb: "cancel" | "retry") => {
    setError(null);
    try {
      await call("POST", `/actions/${encodeURIComponent(id)}/${verb}`, {});
      onChange();
    } catch (failed) {
      setError(failed as ApiError);
    }
  };
  if (shown.length === 0) return null;
  return (
    <section aria-label="Actions in the queue">
      <h3>In the queue</h3>
      {error && <Failure error={error} />}
      <ol class="rows">
        {shown.map((action) => (
          <li key={action.id}>
            <div class="sum">
              <State shape={SHAPES[action.state] ?? "off"}>{action.state}</State>
              <b class="mono">{action.kind}</b>
              <span class="clip">{action.last_error ?? gist(action.payload)}</span>
              <small class="push n">{action.run_after ? when(action.run_after) : ""}{action.attempts > 1 ? ` · try ${count(action.attempts)} of ${count(action.max_attempts)}` : ""}</small>
              {may("analyst") && action.state === "failed" && <button type="button" class="link" onClick={() => void act(action.id, "retry")}>Retry</button>}
              {may("analyst") && (action.state === "ready" || action.state === "delayed") && <button type="button" class="link" onClick={() => void act(action.id, "cancel")}>Cancel</button>}
            </div>
          </li>
        ))}
      </ol>
    </section>
  );
}

function gist(payload: unknown): string {
  if (payload === null || payload === undefined) return "";
  if (typeof payload === "string") return payload;
  const text = JSON.stringify(payload);
  return text === "{}" ? "" : text;
}

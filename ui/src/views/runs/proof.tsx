// A run executed again, without a model, and each of its results compared with the record.

import { useState } from "preact/hooks";
import { ApiError, call, may } from "../../api";
import { counted } from "../../format";
import { CopyRequest } from "../../parts/copy";
import { Failure } from "../../parts/loading";
import { RepeatSign } from "../../parts/sign";
import { State } from "../../parts/state";
import type { Run } from "../../types";
import { type Moved, MovedRows } from "./compare";

interface Proof {
  run_id: string;
  steps: { step: number; kind: string; code: string; outcome: "same" | "different" | "failed"; detail: string; moved: Moved | null }[];
}

export interface Replaying {
  busy: boolean;
  proof: Proof | null;
  error: ApiError | null;
  replay: () => void;
}

export function useReplay(run: Run | null): Replaying {
  const [state, setState] = useState<Omit<Replaying, "replay">>({ busy: false, proof: null, error: null });
  const replay = () => {
    if (!run) return;
    setState({ busy: true, proof: null, error: null });
    call<Proof>("POST", `/runs/${run.id}/replay`, {}).then(
      (proof) => setState({ busy: false, proof, error: null }),
      (failed: unknown) => setState({ busy: false, proof: null, error: failed instanceof ApiError ? failed : new ApiError({ detail: String(failed) }, 0) }),
    );
  };
  return { ...state, replay };
}

export function ReplayButton({ replaying }: { replaying: Replaying }) {
  if (!may("analyst")) return null;
  return <button type="button" class="do" disabled={replaying.busy} onClick={replaying.replay}><RepeatSign /> {replaying.busy ? "Replaying" : "Replay"}</button>;
}

export function ProofReport({ run, replaying }: { run: Run; replaying: Replaying }) {
  const { proof, error } = replaying;
  if (error) return <Failure error={error} again={replaying.replay} />;
  if (!proof) return null;
  const wrong = proof.steps.filter((step) => step.outcome !== "same");
  return (
    <section class="proof" aria-label="Replayed" aria-live="polite">
      <div class="strip">
        <RepeatSign />
        <span>{wrong.length === 0 ? proof.steps.length === 1 ? "The step gave the recorded result" : `All ${counted(proof.steps.length, "step")} gave the recorded results` : `${wrong.length} of ${counted(proof.steps.length, "step")} gave other results`}</span>
        <span>0 tokens</span>
      </div>
      <ol class="rows">
        {proof.steps.map((step) => (
          <li key={step.step}>
            <div class="sum"><State shape={step.outcome === "same" ? "good" : step.outcome === "failed" ? "bad" : "ask"}>{step.outcome}</State><span class="clip mono">{step.code.trim().split("\n", 1)[0]}</span></div>
            {step.detail && <p class="note">{step.detail}</p>}
            {step.moved && <MovedRows moved={step.moved} />}
          </li>
        ))}
      </ol>
      <div class="after"><CopyRequest method="POST" path={`/runs/${run.id}/replay`} body={{}} /></div>
    </section>
  );
}

// Was the answer right? It counts for the playbooks that the run was shown; a wrong answer is not replayed.

import { useState } from "preact/hooks";
import { ApiError, call, may } from "../api";
import type { Run } from "../types";
import { Failure } from "./loading";

type Verdict = "right" | "wrong";

export function Feedback({ run }: { run: Run }) {
  const [said, setSaid] = useState<Verdict | null>(null);
  const [asking, setAsking] = useState(false);
  const [suspended, setSuspended] = useState(0);
  const [error, setError] = useState<ApiError | null>(null);
  if (!may("analyst") || run.status !== "succeeded") return null;
  const say = async (verdict: Verdict, comment = "") => {
    const before = said;
    setSaid(verdict);
    setAsking(false);
    setError(null);
    try {
      const noted = await call<{ suspended: string[] }>("POST", `/runs/${run.id}/feedback`, { verdict, comment });
      setSuspended(noted.suspended.length);
    } catch (failed) {
      setSaid(before);
      setError(failed as ApiError);
    }
  };
  const send = (event: SubmitEvent) => {
    event.preventDefault();
    void say("wrong", String(new FormData(event.currentTarget as HTMLFormElement).get("why")).trim());
  };
  return (
    <>
      <span class="feedback" role="group" aria-label="Was this right?">
        <button type="button" class="link" aria-pressed={said === "right"} onClick={() => void say("right")}>Right</button>
        <button type="button" class="link" aria-pressed={said === "wrong"} aria-expanded={asking} onClick={() => setAsking(!asking)}>Wrong</button>
        {said && !asking && <small role="status">{suspended ? "Noted. It will not be replayed." : "Noted."}</small>}
      </span>
      {asking && (
        <form class="acts why" onSubmit={send}>
          <input name="why" aria-label="What is wrong" placeholder="What is wrong, if you know" autoFocus autoComplete="off" />
          <button type="submit">Say it is wrong</button>
        </form>
      )}
      {error && <Failure error={error} />}
    </>
  );
}

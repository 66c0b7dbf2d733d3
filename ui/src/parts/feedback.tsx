// Was the answer right? It counts for the playbooks that the run was shown; a wrong answer is not replayed.

import { useEffect, useState } from "preact/hooks";
import { ApiError, call, may } from "../api";
import type { Run, Verdict } from "../types";
import { useFocus } from "./focus";
import { Failure } from "./loading";

export function Feedback({ run }: { run: Run }) {
  const [given, setSaid] = useState<Verdict | null>(null);
  const said = given ?? run.feedback;
  const [asking, setAsking] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  if (!may("analyst") || run.status !== "succeeded") return null;
  const say = async (verdict: Verdict["verdict"], comment = "") => {
    const before = given;
    setSaid({ verdict, comment, by: "", suspended: [] });
    setAsking(false);
    setError(null);
    try {
      const noted = await call<{ suspended: string[] }>("POST", `/runs/${run.id}/feedback`, { verdict, comment });
      setSaid({ verdict, comment, by: "", suspended: noted.suspended });
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
        <button type="button" class="link" aria-pressed={said?.verdict === "right"} onClick={() => void say("right")}>Right</button>
        <button type="button" class="link" aria-pressed={said?.verdict === "wrong"} aria-expanded={asking} onClick={() => setAsking(!asking)}>Wrong</button>
        {given && !asking && <small role="status">{given.suspended.length ? "Noted. It will not be replayed." : "Noted."}</small>}
      </span>
      {said?.comment && !asking && <p class="note why">{said.verdict === "wrong" ? "Wrong" : "Right"}{said.by ? `, says ${said.by}` : ""}: {said.comment}</p>}
      {asking && (
        <form class="acts why" onSubmit={send}>
          <WhyField />
          <button type="submit">Say it is wrong</button>
        </form>
      )}
      {error && <Failure error={error} />}
    </>
  );
}

function WhyField() {
  const field = useFocus();
  useEffect(() => field.current?.scrollIntoView({ block: "nearest" }), []);
  return <input ref={field} name="why" aria-label="What is wrong" placeholder="What is wrong, if you know" autoComplete="off" />;
}

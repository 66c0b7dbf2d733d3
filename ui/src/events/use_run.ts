import { useEffect, useState } from "preact/hooks";
import { call } from "../api";
import { useLoaded } from "../parts/loading";
import { ENDED, type Run } from "../types";
import { type Followed, followRun } from "./follow";

export interface LiveRun {
  run: Run | null;
  writing: string;
  error: ReturnType<typeof useLoaded<Run>>["error"];
  reload: () => void;
}

/** A run as it is now and as it goes on. */
export function useRun(runId: string | null): LiveRun {
  const loaded = useLoaded(async (abort) => (runId ? await call<Run>("GET", `/runs/${runId}`, undefined, abort) : null), [runId]);
  const [followed, setFollowed] = useState<Followed | null>(null);
  const known = loaded.data?.id === runId ? loaded.data : null;
  useEffect(() => {
    setFollowed(null);
    if (!runId || !known || ENDED.has(known.status)) return;
    return followRun(runId, known, setFollowed);
  }, [runId, known]);
  const current = followed && followed.run.id === runId ? followed : null;
  return { run: current?.run ?? known, writing: current?.writing ?? "", error: loaded.error as LiveRun["error"], reload: loaded.reload };
}

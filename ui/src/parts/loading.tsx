// Load something and show it: a skeleton only after 200 ms, an error with a way out, and the data.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api";

export interface Loaded<T> {
  data: T | null;
  error: ApiError | null;
  reload: () => void;
  set: (data: T) => void;
}

/** Load what `load` returns, again whenever a key changes. Data of the last key stays until the new data is there. */
export function useLoaded<T>(load: (abort: AbortSignal) => Promise<T>, keys: readonly unknown[]): Loaded<T> {
  const [state, setState] = useState<{ data: T | null; error: ApiError | null }>({ data: null, error: null });
  const [again, setAgain] = useState(0);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    const abort = new AbortController();
    latest.current(abort.signal).then(
      (data) => !abort.signal.aborted && setState({ data, error: null }),
      (error: unknown) => {
        if (abort.signal.aborted) return;
        const known = error instanceof ApiError ? error : new ApiError({ detail: String(error) }, 0);
        setState((before) => ({ data: before.data, error: known }));
      },
    );
    return () => abort.abort();
  }, [...keys, again]);
  return {
    ...state,
    reload: () => setAgain((count) => count + 1),
    set: (data) => setState({ data, error: null }),
  };
}

/** What is being done, in words, once it has taken 200 ms. */
export function Waiting({ for: what }: { for: string }) {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 200);
    return () => clearTimeout(timer);
  }, []);
  if (!late) return null;
  return (
    <div class="skeleton" role="status">
      <span class="note">{what}</span>
      <i />
      <i />
      <i />
    </div>
  );
}

/** What happened, why, and what to do. */
export function Failure({ error, again }: { error: ApiError; again?: () => void }) {
  return (
    <div class="fail" role="alert">
      <p class="says2">{error.message}</p>
      {error.hint && <p>{error.hint}</p>}
      {again && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

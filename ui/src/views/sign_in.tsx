import { useState } from "preact/hooks";
import { type ApiError, call, session } from "../api";
import { Failure } from "../parts/loading";
import type { Session } from "../types";

export function SignIn() {
  const [error, setError] = useState<ApiError | null>(null);
  const enter = async (event: SubmitEvent) => {
    event.preventDefault();
    const key = String(new FormData(event.currentTarget as HTMLFormElement).get("key")).trim();
    try {
      session.value = await call<Session>("POST", "/session", { key });
    } catch (failed) {
      setError(failed as ApiError);
    }
  };
  return (
    <main class="single" id="content" tabIndex={-1}>
      <h1>Sign in</h1>
      <p class="lead">This server needs a key. An administrator creates one with <code>etude keys create</code>.</p>
      <form class="sign-in" onSubmit={enter}>
        <label for="key">Key</label>
        <input id="key" name="key" type="password" required autoComplete="current-password" autoFocus />
        <div class="acts"><button type="submit" class="do">Sign in</button></div>
        {error && <Failure error={error} />}
      </form>
    </main>
  );
}

// System: is it healthy, what waits and what is stored, what has been used, who may do what, and what was done.

import { useState } from "preact/hooks";
import { type ApiError, call, may, session } from "../api";
import { count, duration, moment } from "../format";
import { ChooseModel } from "../parts/choose_model";
import { Failure, useLoaded, Waiting } from "../parts/loading";
import { State } from "../parts/state";
import type { Listing } from "../types";
import { StatusSections } from "./status";

interface Health {
  ok: boolean;
  version: string;
  parts: Record<string, { ok: boolean; detail: string }>;
}

interface Key {
  id: string;
  name: string;
  role: string;
  created_at: string;
  expires_at: string | null;
  revoked_at: string | null;
}

interface Act {
  id: string;
  at: string;
  key_id: string | null;
  action: string;
  status: number;
}

export function SystemView() {
  const health = useLoaded(readHealth, []);
  const spent = useLoaded((abort) => call<{ tokens: number; cost_usd: number; seconds: number }>("GET", "/spending", undefined, abort), []);
  const parts = Object.entries(health.data?.parts ?? {});
  const broken = parts.filter(([, part]) => !part.ok);
  return (
    <main class="wide-page" id="content" tabIndex={-1}>
      <h1>{!health.data ? "System" : health.data.ok ? "Working" : `${broken.map(([name]) => name).join(" and ")} not working`}</h1>
      {health.error && <Failure error={health.error} again={health.reload} />}
      {!health.data && !health.error && <Waiting for="Checking each part" />}
      {health.data && (
        <div class="facts parts">
          {parts.map(([name, part]) => <State key={name} shape={part.ok ? "good" : "bad"}>{name} <b>{!part.ok ? `failing: ${part.detail}` : name === "model" && part.detail === "offline" ? "rules, no model" : part.detail}</b></State>)}
          <span>version <b>{health.data.version}</b></span>
          {spent.data && <span>today <b>{count(spent.data.tokens)}</b> tokens, <b>${spent.data.cost_usd.toFixed(2)}</b>, <b>{duration(spent.data.seconds * 1000)}</b> of work</span>}
        </div>
      )}
      {health.data?.parts.model?.detail === "offline" && <ChooseModel />}
      {may("admin") && <StatusSections />}
      {session.value?.keys && may("admin") && <Keys />}
      {may("admin") && <Audit />}
      {!may("admin") && <p class="note sect">Queue, workers, storage, keys and the audit log are shown to administrators.</p>}
    </main>
  );
}

async function readHealth(): Promise<Health> {
  const response = await fetch("/readyz", { headers: { Accept: "application/json" } });
  return (await response.json()) as Health;
}

function Keys() {
  const keys = useLoaded((abort) => call<Listing<Key>>("GET", "/keys", undefined, abort), []);
  const [made, setMade] = useState<string | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const act = async (work: Promise<unknown>) => {
    setError(null);
    try {
      const result = await work;
      if (result && typeof result === "object" && "key" in result) setMade(String(result.key));
      keys.reload();
    } catch (failed) {
      setError(failed as ApiError);
    }
  };
  const create = (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    void act(call("POST", "/keys", { name: String(form.get("name")), role: String(form.get("role")) }));
  };
  return (
    <section class="sect">
      <h2>Keys</h2>
      {error && <Failure error={error} />}
      {made && <p class="line-note ok">The new key, shown only this once: <code>{made}</code></p>}
      <table>
        <thead><tr><th>name</th><th>role</th><th>since</th><th /></tr></thead>
        <tbody>{keys.data?.items.map((key) => (
          <tr key={key.id}>
            <th>{key.name}</th><td>{key.role}</td><td>{moment(key.created_at)}</td>
            <td class="n">{key.revoked_at ? "revoked" : <button type="button" class="link" onClick={() => void act(call("DELETE", `/keys/${key.id}`))}>Revoke</button>}</td>
          </tr>
        ))}</tbody>
      </table>
      <form class="acts" onSubmit={create}>
        <input name="name" required aria-label="Name of the key" placeholder="Name" />
        <select name="role" aria-label="Role"><option>reader</option><option>analyst</option><option>admin</option></select>
        <button type="submit">Create a key</button>
      </form>
    </section>
  );
}

/** Requests that changed something, newest first; the same one several times in a row is one line. */
function Audit() {
  const loaded = useLoaded((abort) => call<Listing<Act>>("GET", "/audit?limit=100", undefined, abort), []);
  if (loaded.error) return <Failure error={loaded.error} />;
  const lines: { act: Act; times: number }[] = [];
  for (const act of loaded.data?.items ?? []) {
    const last = lines.at(-1);
    if (last && last.act.action === act.action && last.act.status === act.status && last.act.key_id === act.key_id) last.times += 1;
    else lines.push({ act, times: 1 });
  }
  return (
    <section class="sect">
      <div class="hd"><h2>What was done</h2><small>the last {count(loaded.data?.items.length ?? 0)} requests that may change something</small></div>
      {loaded.data && lines.length === 0 && <p class="note">Nothing yet.</p>}
      {lines.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Audit log">
          <table class="audit">
            <thead><tr><th>when</th><th>request</th><th class="n">times</th><th class="n">answer</th><th>key</th></tr></thead>
            <tbody>{lines.map(({ act, times }) => (
              <tr key={act.id}>
                <td class="soft">{moment(act.at)}</td><td class="mono clip">{act.action}</td><td class="n">{times > 1 ? count(times) : ""}</td>
                <td class={act.status >= 400 ? "n fail-line" : "n"}>{act.status}</td><td>{act.key_id ?? ""}</td>
              </tr>
            ))}</tbody>
          </table>
        </div>
      )}
    </section>
  );
}

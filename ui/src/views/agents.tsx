// Agents: what each is doing, its steps, and the verbs that control it.

import { useEffect, useState } from "preact/hooks";
import { ApiError, call, may } from "../api";
import { count, counted, duration, fraction, moment, when } from "../format";
import { CopyRequest } from "../parts/copy";
import { Failure, useLoaded, Waiting } from "../parts/loading";
import { fieldsOf, label, readForm, type Schema, SchemaFields } from "../parts/schema_form";
import { type Shape, State } from "../parts/state";
import { go, link } from "../router";
import type { Dataset, Listing } from "../types";
import { type Action, AgentActions } from "./agent_actions";

interface Agent {
  id: string;
  kind: string;
  config: Record<string, unknown>;
  status: string;
  activity: string;
  step_no: number;
  tokens: number;
  cost_usd: number;
  thread_id: string | null;
  last_output: unknown;
  last_error: string | null;
  created_at: string;
  updated_at: string;
  next_at: string | null;
}

interface AgentStep {
  step_no: number;
  action: string;
  kind: string;
  input: unknown;
  output: unknown;
  outcome: string;
  error: string | null;
  started_at: string;
  ended_at: string;
  tokens: number;
}

const SHAPES: Record<string, Shape> = {
  running: "run", queued: "wait", waiting: "wait", idle: "good", done: "good", pausing: "wait", paused: "wait", destroying: "off", destroyed: "off",
};

/** What an agent is doing as soon as it is asked to. */
const SOON: Record<string, string> = { pause: "pausing", resume: "queued", destroy: "destroying" };

export function AgentsView({ agentId, creating }: { agentId: string | null; creating: boolean }) {
  const agents = useLoaded((abort) => call<Listing<Agent>>("GET", "/agents?limit=200", undefined, abort), []);
  useEffect(() => {
    const poll = setInterval(() => agents.reload(), 3000);
    return () => clearInterval(poll);
  }, []);
  const items = agents.data?.items ?? [];
  const working = items.filter((agent) => agent.activity === "running").length;
  const failed = items.filter((agent) => agent.last_error).length;
  return (
    <main class="wide-page" id="content" tabIndex={-1}>
      <div class="hd">
        <h1>{items.length === 0 ? (creating ? "Agents" : "No agents") : working ? `${count(working)} at work` : "Agents at rest"}{failed ? `, ${count(failed)} with an error` : ""}</h1>
        {may("analyst") && <a class="button" href={link("agents", "new")}>New agent</a>}
      </div>
      {agents.error && <Failure error={agents.error} again={agents.reload} />}
      {!agents.data && !agents.error && <Waiting for="Reading the agents" />}
      {creating && <NewAgent />}
      {items.length === 0 && agents.data && !creating && (
        <p class="lead">An agent keeps working after you leave: it watches a number, keeps a catalog fresh, writes a report. Create one to see its steps here.</p>
      )}
      <div class={agentId ? "agents" : ""}>
        {items.length > 0 && (
          <table class="cards">
            <thead><tr><th>agent</th><th>state</th><th class="n">steps</th><th>last result</th><th class="n">tokens</th><th>next</th></tr></thead>
            <tbody>
              {items.map((agent) => (
                <tr key={agent.id} class={agent.id === agentId ? "here" : ""}>
                  <th><a href={link("agents", agent.id)} title={agent.id}>{nameOf(agent)}</a> <small>{agent.kind}</small></th>
                  <td><State shape={agent.last_error ? "bad" : (SHAPES[agent.activity] ?? "off")}>{agent.activity}</State></td>
                  <td class="n" data-l="steps">{count(agent.step_no)}</td>
                  <td class="soft2 clip">{agent.last_error ?? brief(agent.last_output)}</td>
                  <td class="n" data-l="tokens">{count(agent.tokens)}</td>
                  <td class="soft">{agent.next_at ? when(agent.next_at) : ""}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        {agentId && agentId !== "new" && <AgentDetail key={agentId} agentId={agentId} onChange={agents.reload} />}
      </div>
    </main>
  );
}

/** An agent without a name of its own is called by what it asks, or else by the end of its id. */
function nameOf({ id, config }: Agent): string {
  if (!/^agent_\w{20,}$/.test(id)) return id;
  const asks = [config.question, config.goal, config.sql].find((text) => typeof text === "string" && text.trim());
  return asks ? String(asks) : `agent ${id.slice(-6)}`;
}

function brief(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return value;
  if (typeof value === "object" && "text" in value && typeof value.text === "string") return value.text;
  if (typeof value === "object" && "answer" in value) return `${answer(value.answer)}${"was" in value ? `, was ${answer(value.was)}` : ""}`;
  return JSON.stringify(value);
}

/** Rows of an answer that are written out. */
const WRITTEN = 4;

/** The answer of a watched question: its value, or its first rows. */
function answer(rows: unknown): string {
  if (!Array.isArray(rows)) return typeof rows === "string" ? rows : JSON.stringify(rows);
  const only = rows.length === 1 && Array.isArray(rows[0]) && rows[0].length === 1 ? rows[0][0] : undefined;
  if (only !== undefined) return valueText(only);
  const written = rows.slice(0, WRITTEN).map((row) => (Array.isArray(row) ? row.map(valueText).join(" ") : valueText(row)));
  return `${written.join("; ")}${rows.length > WRITTEN ? `; ${counted(rows.length - WRITTEN, "more row")}` : ""}`;
}

function valueText(value: unknown): string {
  return typeof value === "number" ? fraction(value) : typeof value === "string" ? value : JSON.stringify(value);
}

function AgentDetail({ agentId, onChange }: { agentId: string; onChange: () => void }) {
  const path = `/agents/${encodeURIComponent(agentId)}`;
  const agent = useLoaded((abort) => call<Agent>("GET", path, undefined, abort), [agentId]);
  const steps = useLoaded((abort) => call<Listing<AgentStep>>("GET", `${path}/steps?limit=500`, undefined, abort), [agentId]);
  const actions = useLoaded((abort) => call<Listing<Action>>("GET", `/actions?agent=${encodeURIComponent(agentId)}&limit=50`, undefined, abort), [agentId]);
  const [error, setError] = useState<ApiError | null>(null);
  const [destroying, setDestroying] = useState(false);
  useEffect(() => {
    const timer = setInterval(() => {
      agent.reload();
      steps.reload();
      actions.reload();
    }, 2000);
    return () => clearInterval(timer);
  }, []);
  const act = async (verb: string, body: unknown = {}) => {
    setError(null);
    const before = agent.data;
    const soon = SOON[verb];
    if (before && soon) agent.set({ ...before, activity: soon }); // shown at once; the answer of the server decides
    try {
      const info = await call<Agent>("POST", `${path}/${verb}`, body);
      if ("activity" in info) agent.set(info);
      agent.reload();
      onChange();
    } catch (failed) {
      if (before) agent.set(before);
      setError(failed as ApiError);
    }
  };
  const send = (verb: string, field: string) => (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const text = String(new FormData(form).get("text")).trim();
    if (!text) return;
    void act(verb, { [field]: text });
    form.reset();
  };
  if (agent.error) return <section class="opened"><Failure error={agent.error} again={agent.reload} /></section>;
  const info = agent.data;
  if (!info) return <section class="opened"><Waiting for="Reading the agent" /></section>;
  const paused = info.activity === "paused" || info.activity === "pausing";
  const gone = info.status === "destroyed" || info.status === "destroying";
  return (
    <section class="opened" aria-label={info.id}>
      <div class="hd"><h2 title={info.id}>{nameOf(info)}</h2><a href={link("agents")}>Close</a></div>
      <div class="facts"><State shape={SHAPES[info.activity] ?? "off"}>{info.activity}</State><span>{info.kind}</span><span>since {moment(info.created_at)}</span><span><b>{count(info.tokens)}</b> tokens</span></div>
      {info.last_error && <p class="fail-line">{info.last_error}</p>}
      {may("analyst") && !gone && (
        <div class="acts verbs">
          {paused ? <button type="button" class="do" onClick={() => void act("resume")}>Resume</button> : <button type="button" onClick={() => void act("pause")}>Pause</button>}
          <button type="button" onClick={() => void act("interrupt", {})} title="End the current step; it runs again">Interrupt</button>
          <button type="button" class="halt push" onClick={() => setDestroying(true)}>Destroy…</button>
        </div>
      )}
      {destroying && (
        <div class="fail" role="alertdialog" aria-label="Destroy this agent">
          <p class="says2">Destroy {info.id}?</p>
          <p><b>Lost:</b> its schedule, its waiting actions{info.thread_id ? " and the variables of its session" : ""}. The current step has 30 s to end.</p>
          <p><b>Kept:</b> {counted(info.step_no, "step")} with their results{info.thread_id ? ", its conversation" : ""} and every run stay recorded.</p>
          <div class="acts"><button type="button" class="halt" onClick={() => { setDestroying(false); void act("destroy"); }}>Destroy it</button><button type="button" onClick={() => setDestroying(false)}>Keep it</button></div>
        </div>
      )}
      {error && <Failure error={error} />}
      {may("analyst") && !gone && (
        <>
          <form class="acts" onSubmit={send("steer", "guidance")}><input name="text" aria-label="Guidance" placeholder="For its next steps: a direction to keep in mind" /><button type="submit">Steer</button></form>
          <form class="acts" onSubmit={send("message", "body")}><input name="text" aria-label="Message" placeholder="For now: a message, handled in a step of its own" /><button type="submit">Send</button></form>
        </>
      )}
      <div class="after"><CopyRequest method="POST" path={`${path}/${paused ? "resume" : "pause"}`} body={{}} />{info.thread_id && <a href={link("ask", info.thread_id)}>its conversation</a>}</div>
      <details class="config"><summary>Configuration</summary><pre tabIndex={0}><code>{JSON.stringify(info.config, null, 2)}</code></pre></details>
      <AgentActions actions={actions.data?.items ?? []} onChange={actions.reload} />
      <h3>Steps</h3>
      <ol class="rows" aria-label="Steps">
        {(steps.data?.items ?? []).toReversed().map((step) => (
          <li key={step.step_no}>
            <details>
              <summary><span class="n soft">{step.step_no}</span> <b class="mono">{step.kind}</b> <span class="clip">{step.error ?? brief(step.output)}</span> <small class="push">{duration(Date.parse(step.ended_at) - Date.parse(step.started_at))}</small></summary>
              <pre tabIndex={0}><code>{JSON.stringify({ input: step.input, output: step.output, error: step.error }, null, 2)}</code></pre>
            </details>
          </li>
        ))}
      </ol>
      {steps.data?.items.length === 0 && <p class="note">No step yet.</p>}
    </section>
  );
}

interface AgentKind {
  kind: string;
  description: string;
  config: Schema;
}

/** Kinds that people look for first. */
const FIRST = ["watch", "analyst", "catalog", "index"];

/** A refused configuration without the configuration itself, which is in the form. */
function readable(failed: unknown): ApiError {
  if (!(failed instanceof ApiError)) return new ApiError({ detail: (failed as Error).message, hint: 'Write an object, such as {"from": "orders"}.' }, 0);
  const reason = /^The configuration of a `\w+` agent cannot be `\{.*\}`: (.*)$/s.exec(failed.message)?.[1];
  const named = reason?.replace(/`(\w+)`/g, (_, name: string) => label(name));
  return named ? new ApiError({ detail: `This agent cannot be created yet: ${named}` }, failed.status) : failed;
}

function NewAgent() {
  const kinds = useLoaded((abort) => call<Listing<AgentKind>>("GET", "/agents/kinds", undefined, abort), []);
  const datasets = useLoaded((abort) => call<Listing<Dataset>>("GET", "/datasets", undefined, abort), []);
  const [chosen, setChosen] = useState<string | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [body, setBody] = useState<unknown>(null);
  const place = (kind: string) => (FIRST.includes(kind) ? FIRST.indexOf(kind) : FIRST.length);
  const items = (kinds.data?.items ?? []).toSorted((one, other) => place(one.kind) - place(other.kind));
  const kind = items.find((one) => one.kind === chosen) ?? items.find((one) => one.kind === "watch") ?? items[0];
  if (kinds.error) return <Failure error={kinds.error} again={kinds.reload} />;
  if (!kind) return <Waiting for="Reading the kinds of agents" />;
  const fields = fieldsOf(kind.config);
  const read = (form: HTMLFormElement) => {
    const data = new FormData(form);
    const id = String(data.get("id")).trim();
    return { kind: kind.kind, config: readForm(data, fields), ...(id ? { id } : {}) };
  };
  const create = async (event: SubmitEvent) => {
    event.preventDefault();
    setError(null);
    try {
      const made = await call<Agent>("POST", "/agents", read(event.currentTarget as HTMLFormElement));
      go(link("agents", made.id));
    } catch (failed) {
      setError(readable(failed));
    }
  };
  const note = (event: Event) => {
    try {
      setBody(read(event.currentTarget as HTMLFormElement));
    } catch {
      setBody(null); // a field is not complete yet
    }
  };
  return (
    <section class="panel new-agent" aria-label="New agent">
      <div class="hd">
        <h2>New agent</h2>
        <span class="seg" role="group" aria-label="Kind">
          {items.map((one) => <button type="button" key={one.kind} aria-pressed={one === kind} onClick={() => { setChosen(one.kind); setError(null); }}>{one.kind}</button>)}
        </span>
      </div>
      <p class="soft">{kind.description}</p>
      <form class="form" key={kind.kind} onSubmit={create} onInput={note}>
        <SchemaFields fields={fields} datasets={datasets.data?.items ?? []} />
        <label for="id">Name</label>
        <div><input id="id" name="id" placeholder="chosen for you if empty" autoComplete="off" /></div>
        <span />
        <div class="acts"><button type="submit" class="do">Create</button><a href={link("agents")}>Cancel</a><CopyRequest method="POST" path="/agents" body={body ?? { kind: kind.kind, config: {} }} /></div>
        {error && <Failure error={error} />}
      </form>
    </section>
  );
}

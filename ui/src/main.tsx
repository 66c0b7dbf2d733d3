import "./css/tokens.css";
import "./css/page.css";
import { type ComponentType, render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError, openSession, session } from "./api";
import { Failure, Waiting } from "./parts/loading";
import { place } from "./router";
import { Shell } from "./shell";
import { AskView } from "./views/ask/ask";
import { SignIn } from "./views/sign_in";

/** Views that are loaded when they are opened. */
const LAZY = {
  runs: () => import("./views/runs/runs").then((module) => module.RunsView as ComponentType<never>),
  agents: () => import("./views/agents").then((module) => module.AgentsView as ComponentType<never>),
  catalog: () => import("./views/catalog").then((module) => module.CatalogView as ComponentType<never>),
  learning: () => import("./views/learning/learning").then((module) => module.LearningView as ComponentType<never>),
  system: () => import("./views/system").then((module) => module.SystemView as ComponentType<never>),
};
type LazyName = keyof typeof LAZY;

function Lazy({ name, props }: { name: LazyName; props: Record<string, unknown> }) {
  const [view, setView] = useState<{ name: LazyName; View: ComponentType<Record<string, unknown>> } | null>(null);
  useEffect(() => {
    let left = false;
    void LAZY[name]().then((View) => !left && setView({ name, View: View as ComponentType<Record<string, unknown>> }));
    return () => {
      left = true;
    };
  }, [name]);
  if (view?.name !== name) return <main id="content"><h1 class="away">{name}</h1><Waiting for="Opening the view" /></main>;
  return <view.View {...props} />;
}

function Page() {
  const { path, query } = place.value;
  const [view = "ask", first = null, second = null] = path;
  const titles: Record<string, string> = { runs: "Runs", agents: "Agents", catalog: "Catalog", learning: "Learning", system: "System" };
  useEffect(() => {
    if (titles[view]) document.title = `${first ?? titles[view]} · etude`;
  }, [view, first]);
  if (session.value?.keys && session.value.role === null) return <Shell view=""><SignIn /></Shell>;
  return (
    <Shell view={view === "start" ? "ask" : view}>
      {view === "runs" ? <Lazy name="runs" props={{ runId: first, query }} />
        : view === "agents" ? <Lazy name="agents" props={{ agentId: first === "new" ? null : first, creating: first === "new" }} />
        : view === "catalog" ? <Lazy name="catalog" props={{ dataset: first, table: second }} />
        : view === "learning" ? <Lazy name="learning" props={{ kind: first, name: second }} />
        : view === "system" ? <Lazy name="system" props={{}} />
        : <AskView threadId={view === "ask" ? first : null} starting={view === "start"} asked={query.get("q")} about={query.get("dataset")} turn={query.get("turn")} />}
    </Shell>
  );
}

function App() {
  const [error, setError] = useState<ApiError | null>(null);
  const open = () => {
    setError(null);
    openSession().catch((failed: unknown) => setError(failed instanceof ApiError ? failed : new ApiError({ detail: String(failed) }, 0)));
  };
  useEffect(open, []);
  if (error) return <main class="single" id="content"><Failure error={error} again={open} /></main>;
  if (!session.value) return <Waiting for="Opening" />;
  return <Page />;
}

render(<App />, document.getElementById("app") as HTMLElement);

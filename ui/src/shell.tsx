// The frame of every view: where you are, the search box, the theme, and the connection.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { call, isTyping, online, session } from "./api";
import { useLoaded } from "./parts/loading";
import { RepeatSign } from "./parts/sign";
import { go, link } from "./router";
import type { Dataset, Listing, RunSummary, Thread } from "./types";

const VIEWS = [["ask", "Ask"], ["runs", "Runs"], ["agents", "Agents"], ["catalog", "Catalog"], ["learning", "Learning"], ["system", "System"]] as const;
const THEMES = ["auto", "light", "dark"] as const;
type Theme = (typeof THEMES)[number];

const theme = signal<Theme>((localStorage.getItem("theme") as Theme | null) ?? "auto");
const searching = signal(false);

function applyTheme(): void {
  if (theme.value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
}
applyTheme();

function nextTheme(): void {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] as Theme;
  localStorage.setItem("theme", theme.value);
  applyTheme();
}

export function Shell({ view, children }: { view: string; children: ComponentChildren }) {
  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      if ((event.key === "/" && !isTyping(event)) || (event.key === "k" && (event.ctrlKey || event.metaKey))) {
        event.preventDefault();
        searching.value = true;
      }
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
  return (
    <>
      <a class="skip" href="#content" onClick={(event) => { event.preventDefault(); document.getElementById("content")?.focus(); }}>Skip to the content</a>
      <header class="top">
        <a class="brand" href={link("ask")}><RepeatSign />etude</a>
        <nav class="main-nav" aria-label="Views">
          {VIEWS.map(([name, word]) => <a key={name} href={link(name)} aria-current={view === name ? "page" : undefined}>{word}</a>)}
        </nav>
        <button type="button" class="find" onClick={() => { searching.value = true; }}>Search everything <kbd>/</kbd></button>
        <button type="button" onClick={nextTheme} aria-label={`Theme: ${theme.value}`}>{theme.value[0]?.toUpperCase()}{theme.value.slice(1)}</button>
        {session.value?.keys && session.value.role && <button type="button" onClick={() => void signOut()}>Sign out</button>}
      </header>
      {!online.value && <p class="offline" role="status">The connection is lost. Nothing you sent is lost; trying again.</p>}
      {children}
      {searching.value && <Menu onClose={() => { searching.value = false; }} />}
    </>
  );
}

async function signOut(): Promise<void> {
  await call("DELETE", "/session");
  session.value = session.value && { ...session.value, role: null, csrf: null };
}

interface Found {
  name: string;
  kind: string;
  address: string;
}

/** Search and command menu: views, conversations, data and runs, by words. */
function Menu({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState("");
  const [asked, setAsked] = useState("");
  const [at, setAt] = useState(0);
  const box = useRef<HTMLDialogElement>(null);
  const threads = useLoaded((abort) => call<Listing<Thread>>("GET", "/threads?limit=200", undefined, abort), []);
  const datasets = useLoaded((abort) => call<Listing<Dataset>>("GET", "/datasets", undefined, abort), []);
  const runs = useLoaded(async (abort) => (asked ? await call<Listing<RunSummary>>("GET", `/runs?limit=8&text=${encodeURIComponent(asked)}`, undefined, abort) : null), [asked]);
  useLayoutEffect(() => box.current?.showModal(), []);
  useEffect(() => {
    const timer = setTimeout(() => setAsked(text.trim()), 120);
    return () => clearTimeout(timer);
  }, [text]);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (name: string) => words.every((word) => name.toLowerCase().includes(word));
  const found: Found[] = [
    ...VIEWS.filter(([, word]) => matches(word)).map(([name, word]) => ({ name: word, kind: "view", address: link(name) })),
    { name: "New thread", kind: "do", address: link("ask") },
    { name: "Add data", kind: "do", address: link("start") },
    { name: "New agent", kind: "do", address: link("agents", "new") },
    ...(datasets.data?.items ?? []).map((dataset) => ({ name: dataset.id, kind: "data", address: link("catalog", dataset.id) })),
    ...(threads.data?.items ?? []).map((thread) => ({ name: thread.title, kind: "conversation", address: link("ask", thread.id) })),
  ].filter((one) => matches(one.name)).slice(0, 12);
  const listed = [...found, ...(runs.data?.items ?? []).map((run) => ({ name: run.text, kind: "run", address: link("runs", run.id) }))];
  const choose = (one: Found | undefined) => {
    if (!one) return;
    onClose();
    go(one.address);
  };
  const key = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setAt(Math.min(at + 1, listed.length - 1));
    else if (event.key === "ArrowUp") setAt(Math.max(at - 1, 0));
    else if (event.key === "Enter") choose(listed[at]);
    else return;
    event.preventDefault();
  };
  return (
    <dialog class="menu" ref={box} onClose={onClose} onClick={(event) => event.target === box.current && onClose()} aria-label="Search everything">
      <input type="text" role="combobox" aria-expanded="true" aria-controls="found" aria-activedescendant={listed[at] ? `found-${at}` : undefined}
        aria-label="Search everything" placeholder="Search views, conversations, data and runs" value={text} autoFocus
        onInput={(event) => { setText(event.currentTarget.value); setAt(0); }} onKeyDown={key} />
      <ul id="found" role="listbox" aria-label="Found">
        {listed.map((one, index) => (
          <li key={`${one.kind}${one.address}${one.name}`} id={`found-${index}`} role="option" aria-selected={index === at} class={index === at ? "here" : ""} onClick={() => choose(one)}>
            <span class="clip">{one.name}</span><small>{one.kind}</small>
          </li>
        ))}
      </ul>
      {listed.length === 0 && <p class="note">Nothing matches “{text}”.</p>}
    </dialog>
  );
}

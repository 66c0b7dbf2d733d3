// The frame of every view: where you are, the search box, the theme, and the connection.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { call, isTyping, online, session } from "./api";
import { RepeatSign } from "./parts/sign";
import { link } from "./router";
import { SearchMenu, VIEWS } from "./search_menu";

type Look = "light" | "dark";

/** The look that a person chose; null follows the system. */
const chosen = signal<Look | null>(readChoice());
const SYSTEM = matchMedia("(prefers-color-scheme: dark)");
const system = signal<Look>(SYSTEM.matches ? "dark" : "light");
const searching = signal(false);

SYSTEM.addEventListener("change", () => {
  system.value = SYSTEM.matches ? "dark" : "light";
});

function readChoice(): Look | null {
  const kept = localStorage.getItem("theme");
  return kept === "light" || kept === "dark" ? kept : null;
}

function applyTheme(): void {
  if (chosen.value === null) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen.value;
}
applyTheme();

/** Go to the other look. The one that the system has is followed, so that it changes with the system. */
function switchTheme(): void {
  const next: Look = (chosen.value ?? system.value) === "dark" ? "light" : "dark";
  chosen.value = next === system.value ? null : next;
  if (chosen.value === null) localStorage.removeItem("theme");
  else localStorage.setItem("theme", chosen.value);
  applyTheme();
}

function ThemeButton() {
  const look = chosen.value ?? system.value;
  const does = `Theme: ${look}. Switch to ${look === "dark" ? "light" : "dark"}.`;
  return (
    <button type="button" class="theme" onClick={switchTheme} aria-label={does} title={does}>
      <svg viewBox="0 0 16 16" aria-hidden="true"><path d="M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Zm0 1.5v11a5.5 5.5 0 0 1 0-11Z" fill-rule="evenodd" /></svg>Theme
    </button>
  );
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
        <ThemeButton />
        {session.value?.keys && session.value.role && <button type="button" onClick={() => void signOut()}>Sign out</button>}
      </header>
      {!online.value && <p class="offline" role="status">The connection is lost. Nothing you sent is lost; trying again.</p>}
      {children}
      {searching.value && <SearchMenu onClose={() => { searching.value = false; }} />}
    </>
  );
}

async function signOut(): Promise<void> {
  await call("DELETE", "/session");
  session.value = session.value && { ...session.value, role: null, csrf: null };
}

// The frame of every view: where you are, the search box, the theme, and the connection.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { call, isTyping, online, session } from "./api";
import { RepeatSign } from "./parts/sign";
import { link } from "./router";
import { SearchMenu, VIEWS } from "./search_menu";

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
      {searching.value && <SearchMenu onClose={() => { searching.value = false; }} />}
    </>
  );
}

async function signOut(): Promise<void> {
  await call("DELETE", "/session");
  session.value = session.value && { ...session.value, role: null, csrf: null };
}

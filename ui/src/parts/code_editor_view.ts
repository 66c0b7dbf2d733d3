// CodeMirror, set up for the page. It lives in a shadow root: there its styles are adopted as sheets, which a strict
// content security policy allows, while style elements are refused.

import { autocompletion, closeBrackets, closeBracketsKeymap, completeFromList, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { python, pythonLanguage } from "@codemirror/lang-python";
import { MySQL, PostgreSQL, SQLite, type SQLDialect, sql } from "@codemirror/lang-sql";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { EditorState, type Extension } from "@codemirror/state";
import { drawSelection, EditorView, keymap } from "@codemirror/view";
import { tags } from "@lezer/highlight";

export type EditorLanguage = "sql" | "python";

export interface EditorOptions {
  language: EditorLanguage;
  dialect: string;
  tables: Record<string, string[]>;
  text: string;
  label: string;
  onText: (text: string) => void;
  onRun: () => void;
  onEscape: () => void;
}

export interface OpenedEditor {
  setText: (text: string) => void;
  focus: () => void;
  close: () => void;
}

export type OpenEditor = (host: HTMLElement, options: EditorOptions) => OpenedEditor;

const DIALECTS: Record<string, SQLDialect> = { mysql: MySQL, mariadb: MySQL, sqlite: SQLite };
const THEME = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "transparent", fontSize: "var(--t-small)" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "var(--l-code)", maxHeight: "20rem" },
  ".cm-content": { padding: ".55rem .75rem .2rem", caretColor: "var(--ink)" },
  ".cm-line": { padding: "0" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--tint)" },
  ".cm-matchingBracket, &.cm-focused .cm-matchingBracket": { backgroundColor: "var(--wash)" },
  ".cm-tooltip": { backgroundColor: "var(--paper)", color: "var(--ink)", border: "1px solid var(--edge)", borderRadius: "var(--r)", boxShadow: "var(--float)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", fontSize: "var(--t-small)", maxHeight: "14rem" },
  ".cm-tooltip-autocomplete ul li": { padding: ".15rem .5rem" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--wash)", color: "var(--ink)" },
  ".cm-completionDetail": { color: "var(--soft)", fontStyle: "normal", marginLeft: "1rem" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "600", color: "var(--accent)" },
});
const COLOURS = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.typeName, tags.standard(tags.name)], color: "var(--accent)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--medium)" },
  { tag: [tags.comment], color: "var(--soft)" },
]);

export const openEditor: OpenEditor = (host, options) => {
  let told = true; // not for a text that comes from outside
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({ doc: options.text, extensions: extensionsOf({ ...options, onText: (text) => told && options.onText(text) }) }),
  });
  return {
    setText: (text) => {
      const before = view.state.doc.toString();
      told = false;
      if (before !== text) view.dispatch({ changes: { from: 0, to: before.length, insert: text }, selection: { anchor: text.length } });
      told = true;
    },
    focus: () => {
      view.focus();
      view.dispatch({ selection: { anchor: view.state.doc.length } });
    },
    close: () => view.destroy(),
  };
};

function extensionsOf(options: EditorOptions): Extension[] {
  const run = () => {
    options.onRun();
    return true;
  };
  const escape = () => {
    options.onEscape();
    return false;
  };
  return [
    languageOf(options),
    history(),
    drawSelection(),
    indentOnInput(),
    bracketMatching(),
    closeBrackets(),
    autocompletion({ icons: false }),
    EditorView.domEventHandlers({ beforeinput: replaceSelection }),
    syntaxHighlighting(COLOURS),
    THEME,
    EditorView.lineWrapping,
    EditorView.contentAttributes.of({ id: "composer", "aria-label": options.label, spellcheck: "false" }),
    EditorView.updateListener.of((update) => update.docChanged && options.onText(update.state.doc.toString())),
    keymap.of([
      { key: "Mod-Enter", run },
      ...closeBracketsKeymap,
      ...completionKeymap,
      { key: "Escape", run: escape },
      ...defaultKeymap,
      ...historyKeymap,
    ]),
  ];
}

/** Text typed over a selection. Chromium would keep the look of the selection as inline styles, which the policy refuses. */
function replaceSelection(event: InputEvent, view: EditorView): boolean {
  const brackets = event.data !== null && /^[([{'"]$/.test(event.data); // these go around the selection
  if (event.inputType !== "insertText" || event.data === null || brackets || view.composing || view.state.selection.main.empty) return false;
  event.preventDefault();
  view.dispatch(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
  return true;
}

function languageOf({ language, dialect, tables }: EditorOptions): Extension {
  if (language === "sql") return sql({ dialect: DIALECTS[dialect] ?? PostgreSQL, schema: tables, upperCaseKeywords: true });
  const names = [
    ...Object.keys(tables).map((label) => ({ label, type: "class", detail: "table" })),
    ...[...new Set(Object.values(tables).flat())].map((label) => ({ label, type: "property", detail: "column" })),
    { label: "db.sql", type: "function", detail: "query" },
  ];
  return [python(), pythonLanguage.data.of({ autocomplete: completeFromList(names) })];
}

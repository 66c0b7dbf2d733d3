import hljs from "highlight.js/lib/core";
import json from "highlight.js/lib/languages/json";
import python from "highlight.js/lib/languages/python";
import sql from "highlight.js/lib/languages/sql";

hljs.registerLanguage("json", json);
hljs.registerLanguage("python", python);
hljs.registerLanguage("sql", sql);

const LONG = 100_000;

/** Return the code as safe HTML: highlight.js escapes its input. Very long code stays plain. */
export function highlight(text: string, language: string): string {
  if (text.length > LONG) return text.replace(/[&<>]/g, (c) => (c === "&" ? "&amp;" : c === "<" ? "&lt;" : "&gt;"));
  return hljs.highlight(text, { language, ignoreIllegals: true }).value;
}

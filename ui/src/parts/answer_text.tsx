// The text of an answer: its first sentence large, its figures with a way back, its unverified numbers marked.

import { useEffect, useState } from "preact/hooks";
import type { Figure } from "../types";
import { figureIndex, figureTag, UNVERIFIED_TAG } from "./number_marks";

interface Props {
  text: string;
  figures?: Figure[];
  unverified?: string[];
  writing?: boolean;
  onFigure?: (figure: Figure) => void;
  /** Stands directly below the first sentence. */
  under?: preact.ComponentChildren;
}

export function AnswerText({ text, figures = [], unverified = [], writing = false, onFigure, under = null }: Props) {
  const [render, setRender] = useState<((text: string) => string) | null>(null);
  useEffect(() => {
    import("./rich_text").then(({ renderMarkdown }) => setRender(() => renderMarkdown));
  }, []);
  if (render === null) return <><p class="answer">{text}</p>{under}</>;
  const [lead, rest] = splitLead(markNumbers(text, figures, unverified));
  const open = (event: Event) => {
    const found = (event.target as HTMLElement).closest("[data-figure]");
    const figure = found && figures[figureIndex(found.getAttribute("data-figure") ?? "")];
    if (!figure) return;
    event.preventDefault();
    onFigure?.(figure);
  };
  return (
    <div onClick={open}>
      {lead && <div class="says" dangerouslySetInnerHTML={{ __html: render(lead) }} />}
      {under}
      {rest && <div class="answer" dangerouslySetInnerHTML={{ __html: render(rest) }} />}
      {writing && <span class="caret" aria-hidden="true" />}
    </div>
  );
}

/** Split the first sentence off, if the text begins with a short plain one. */
export function splitLead(text: string): [string, string] {
  const end = text.search(/\n\s*\n/);
  const first = (end < 0 ? text : text.slice(0, end)).trim();
  if (!first || /^([#>|\-*+]|\d+[.)]\s|```)/.test(first)) return ["", text];
  const sentence = /^(?:[^.!?]|[.!?](?!\s))+[.!?](?=\s+\S)/s.exec(first)?.[0] ?? first;
  const shown = sentence.replace(/<[^>]*>/g, "");
  if (shown.length > 180 || sentence.includes("\n")) return ["", text];
  return [sentence, text.trimStart().slice(sentence.length).trimStart()];
}

/** Put a link around each figure with an origin, and a mark around each number that no result holds. */
export function markNumbers(text: string, figures: Figure[], unverified: string[]): string {
  const points = Array.from(text); // positions count characters, not UTF-16 units
  const parts: string[] = [];
  let at = 0;
  const placed = figures.map((figure, index) => ({ figure, index })).sort((a, b) => a.figure.start - b.figure.start);
  for (const { figure, index } of placed) {
    if (figure.start < at || points.slice(figure.start, figure.end).join("") !== figure.text) continue;
    parts.push(markUnverified(points.slice(at, figure.start).join(""), unverified));
    parts.push(`${figureTag(index)}${figure.text}</a>`);
    at = figure.end;
  }
  parts.push(markUnverified(points.slice(at).join(""), unverified));
  return parts.join("");
}

function markUnverified(text: string, unverified: string[]): string {
  if (unverified.length === 0) return text;
  const escaped = unverified.map((number) => number.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).sort((a, b) => b.length - a.length);
  const found = new RegExp(`(?<![\\w.,])(${escaped.join("|")})(?![\\w]|[.,]\\d)`, "g");
  return text.replace(found, `${UNVERIFIED_TAG}$1</span>`);
}

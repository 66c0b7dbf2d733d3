// How the rules understood a question, as people read it.

import type { Run } from "./types";

/** Parts of a reading that leave rows out. */
const CONDITION = /^(where|with|only|in|from|since|between|before|after|until)\b/;

/** Return how the rules understood the question of a run; empty if a model answered. */
export function readingOf(run: Run): string {
  if (run.model !== "offline") return "";
  if (run.replay?.reading) return run.replay.reading;
  return run.steps.findLast((step) => step.kind === "model" && (step.turn?.calls.length ?? 0) > 0)?.turn?.text ?? "";
}

/** Return the conditions of a reading in plain words, without names of tables; empty if it has none. */
export function conditionsOf(reading: string): string {
  const names: string[] = [];
  const bare = reading.replace(/`([^`]*)`/g, (_, name: string) => `\`${names.push(name) - 1}\``);
  const sentence = bare.split(/\.(?:\s|$)/)[0] ?? "";
  const parts = sentence.split(", ").slice(1).filter((part) => CONDITION.test(part));
  const plain = (part: string) => part.replace(/`(\d+)`/g, (_, at: string, place: number) => shown(names[Number(at)] ?? "", part.slice(0, place)));
  return parts.map(plain).join(", ").replaceAll(", where ", " and ");
}

/** A column without its table. What follows a comparison is a value, which may hold points itself. */
function shown(name: string, before: string): string {
  return /\b(where|with|and|per)\s(\S+\s)?$/.test(before) && !/\bis\b/.test(before) ? name.replace(/^[^.]*\.(?=.)/, "") : name;
}

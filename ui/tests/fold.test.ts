// The logs that Python folded, folded here: the same state, or the same refusal.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { FoldConflict, fold } from "../src/events/fold";
import type { Entry } from "../src/types";

interface Folded {
  name: string;
  entries: Entry[];
  run: unknown;
}

const LOGS = JSON.parse(readFileSync(process.env.ETUDE_LOGS ?? new URL("logs.json", import.meta.url), "utf8")) as Folded[];
const TIME = /^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)$/;

/** Python writes the zone of a time in two ways; a moment is a moment. */
function moments(value: unknown): unknown {
  if (typeof value === "string" && TIME.test(value)) return Date.parse(value);
  if (Array.isArray(value)) return value.map(moments);
  if (value !== null && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, moments(inner)]));
  return value;
}

test("every log folds as in Python", () => {
  expect(LOGS.length).toBeGreaterThan(3);
  for (const { name, entries, run } of LOGS) {
    if (run === null) expect(() => fold(entries), name).toThrow(FoldConflict);
    else {
      expect(moments(fold(entries)), name).toEqual(moments(run));
      const half = Math.ceil(entries.length / 2);
      expect(moments(fold(entries.slice(half), fold(entries.slice(0, half)))), name).toEqual(moments(run));
    }
  }
});

import { describe, expect, test } from "vitest";
import { cell, duration, period } from "../src/format";
import { markNumbers, splitLead } from "../src/parts/answer_text";
import { figureIndex, isOwnTag } from "../src/parts/number_marks";
import { ticks } from "../src/parts/chart";
import { readChart } from "../src/parts/chart_data";

describe("the first sentence of an answer", () => {
  test("is split off where it ends", () => {
    expect(splitLead("It rose by 3.5%. Most came from Oslo.")).toEqual(["It rose by 3.5%.", "Most came from Oslo."]);
    expect(splitLead("There are 12 orders.")).toEqual(["There are 12 orders.", ""]);
  });
  test("is left alone in lists, tables and code", () => {
    for (const text of ["- one\n- two", "| a | b |\n|---|---|", "# Title\n\nText.", "1. first"]) expect(splitLead(text)).toEqual(["", text]);
  });
});

describe("numbers of an answer", () => {
  const figure = { start: 6, end: 9, text: "412", value: "412", result: "r1", expression: "r1.n[0]" };
  test("with an origin become links, counted in characters", () => {
    expect(markNumbers("About 412 of 😀", [figure], [])).toMatch(/^About <a class="num" href="#" data-figure="\w+-0">412<\/a> of 😀$/);
    const after = { ...figure, start: 2, end: 5 };
    expect(markNumbers("😀 412", [after], [])).toMatch(/^😀 <a class="num" href="#" data-figure="\w+-0">412<\/a>$/);
  });
  test("cannot be given an origin by the text itself", () => {
    const [tag, mark] = /<a [^>]*data-figure="([^"]*)">/.exec(markNumbers("About 412", [figure], []))!;
    expect([isOwnTag(tag), figureIndex(mark)]).toEqual([true, 0]);
    const faked = '<a class="num" href="#" data-figure="0">';
    for (const other of [faked, faked.replace("0", "x-0"), '<a class="num" href="#">', '<span class="unverified" title="No result holds this number.">']) expect(isOwnTag(other)).toBe(false);
    expect(figureIndex("0")).toBeNaN();
  });
  test("that no result holds are marked, whole numbers only", () => {
    expect(markNumbers("77 and 770 and 1.77", [], ["77"])).toMatch(/^<span class="unverified"[^>]*>77<\/span> and 770 and 1\.77$/);
  });
});

test("cells show every digit", () => {
  expect(cell(1234567.891, "DOUBLE")).toBe("1,234,567.891");
  expect(cell(-0.5, "DOUBLE")).toBe("−0.5");
  expect(cell("90071992547409931", "BIGINT")).toBe("90071992547409931");
  expect(cell(null, "INTEGER")).toBe("null");
  expect(cell({ a: [1] }, "STRUCT")).toBe('{"a":[1]}');
  expect(cell(1e21, "DOUBLE")).toBe("1e+21");
});

test("durations and periods read well", () => {
  expect([0.4, 12, 1234, 65_000, 4_000_000].map(duration)).toEqual(["0.4 ms", "12 ms", "1.2 s", "65 s", "66 min 40 s"]);
  expect(period("2026-01-02T10:00:00", new Date("2026-01-03T09:00:00"))).toBe("Yesterday");
});

test("axes have round ticks", () => {
  expect(ticks(0, 97)).toEqual([0, 50]);
  expect(ticks(0, 100)).toEqual([0, 50, 100]);
  expect(ticks(3, 3)).toEqual([3]);
});

test("a chart is read from its specification, or not drawn", () => {
  const columns = [{ name: "city", type: "VARCHAR" }, { name: "n", type: "BIGINT" }];
  const encoding = { x: { field: "city", type: "nominal" }, y: { field: "n", type: "quantitative" } };
  const chart = readChart({ mark: "bar", encoding }, columns, [["Oslo", 3], ["Bergen", null]]);
  expect(chart?.series).toEqual([{ name: "", points: [{ x: "Oslo", y: 3 }] }]);
  expect(readChart({ mark: "arc", encoding }, columns, [])).toBeNull();
  expect(readChart({ mark: "bar", encoding: { ...encoding, row: { field: "city" } } }, columns, [])).toBeNull();
});

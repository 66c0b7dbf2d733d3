import { describe, expect, test } from "vitest";
import { cell, duration, fraction, namesThings, period, placesOf } from "../src/format";
import { markNumbers, splitLead } from "../src/parts/answer_text";
import { figureIndex, isOwnTag } from "../src/parts/number_marks";
import { axisTicks, ticks, timeTicks } from "../src/parts/chart";
import { readChart } from "../src/parts/chart_data";
import { isCrowded, logScale, rebin } from "../src/parts/histogram";
import { layOutSql } from "../src/parts/sql_layout";
import { conditionsOf } from "../src/reading";

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
    for (const other of [faked, faked.replace("0", "x-0"), '<a class="num" href="#">', '<span class="unverified" title="Could not be traced to the results.">']) expect(isOwnTag(other)).toBe(false);
    expect(figureIndex("0")).toBeNaN();
  });
  test("that no result holds are marked, whole numbers only", () => {
    expect(markNumbers("77 and 770 and 1.77", [], ["77"])).toMatch(/^<span class="unverified"[^>]*>77<\/span> and 770 and 1\.77$/);
  });
});

test("cells show whole numbers and texts as they are", () => {
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

test("an axis reaches the least and the greatest value", () => {
  expect(axisTicks(0, 540)).toEqual([0, 200, 400, 600]);
  expect(axisTicks(-3, 97)).toEqual([-50, 0, 50, 100]);
  expect(axisTicks(0, 0)).toEqual([0, 1]);
  expect(axisTicks(7, 7).at(-1)).toBeGreaterThanOrEqual(7);
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

test("fractions of a column are written alike, to four places", () => {
  const sums = [470.8399999999999, 357.429999999999, 451.99, 270.8];
  expect(sums.map((value) => fraction(value, placesOf(sums)))).toEqual(["470.84", "357.43", "451.99", "270.80"]);
  expect([5.986818181818181, 1e-9, 0.001234567, -0.00001, 1e21, 12345678.5].map((value) => fraction(value))).toEqual(["5.9868", "1e−9", "0.001235", "−0.00001", "1e+21", "12,345,678.5"]);
  expect([3, -0, 1_234_567].map((value) => fraction(value))).toEqual(["3", "0", "1,234,567"]);
  expect([cell(2024, "BIGINT", 0, !namesThings("year")), cell(2024, "BIGINT", 0, !namesThings("orders"))]).toEqual(["2024", "2,024"]);
});

test("an axis of time begins months and years", () => {
  const texts = (from: string, to: string) => timeTicks(Date.parse(from), Date.parse(to)).map((tick) => tick.text);
  expect(texts("2024-01-01", "2024-12-01")).toEqual(["Jan 2024", "Mar", "May", "Jul", "Sept", "Nov"]);
  expect(texts("2015-06-01", "2024-06-01")).toEqual(["2016", "2018", "2020", "2022", "2024"]);
  expect(texts("2024-03-01", "2024-03-06")).toEqual(["1 Mar", "2 Mar", "3 Mar", "4 Mar", "5 Mar", "6 Mar"]);
});

describe("SQL for reading", () => {
  const QUERY = "SELECT o.status, count(*) AS orders, sum(l.quantity * l.unit_price) AS revenue FROM orders AS o LEFT JOIN order_lines AS l ON l.order_id = o.order_id WHERE o.placed_at BETWEEN '2024-01-01' AND '2024-12-31' AND o.status <> 'a  from b' GROUP BY o.status ORDER BY revenue DESC LIMIT 10";
  test("has a line for each clause", () => {
    expect(layOutSql(QUERY).split("\n")).toEqual([
      "SELECT",
      "  o.status,",
      "  count(*) AS orders,",
      "  sum(l.quantity * l.unit_price) AS revenue",
      "FROM orders AS o",
      "LEFT JOIN order_lines AS l ON l.order_id = o.order_id",
      "WHERE",
      "  o.placed_at BETWEEN '2024-01-01' AND '2024-12-31'",
      "  AND o.status <> 'a  from b'",
      "GROUP BY o.status",
      "ORDER BY revenue DESC",
      "LIMIT 10",
    ]);
  });
  test("sets queries within queries apart", () => {
    expect(layOutSql("WITH paid AS (SELECT customer_id, sum(total) AS total FROM orders WHERE status = 'paid' GROUP BY customer_id) SELECT avg(total) FROM paid").split("\n")).toEqual([
      "WITH paid AS (",
      "  SELECT customer_id, sum(total) AS total",
      "  FROM orders",
      "  WHERE status = 'paid'",
      "  GROUP BY customer_id",
      ")",
      "SELECT avg(total)",
      "FROM paid",
    ]);
  });
  test("changes nothing but white space", () => {
    const words = (text: string) => text.replaceAll(/\s+/g, "");
    const odd = ["SELECT 1", "SELECT t.limit, a IS DISTINCT FROM b FROM t", "SELECT * EXCEPT (a) FROM t", "select(1)from t where x='--' or y in(select 2)", "SELECT '(' FROM", ")", "SELECT \"from\" FROM [1, 2]", "SELECT $$ a from b $$ FROM t"];
    for (const query of [QUERY, ...odd]) expect(words(layOutSql(query))).toBe(words(query));
    expect(layOutSql("SELECT t.limit, a IS DISTINCT FROM b FROM t")).toBe("SELECT t.limit, a IS DISTINCT FROM b\nFROM t");
    expect(layOutSql("SELECT 1\nFROM t")).toBe("SELECT 1\nFROM t");
  });
});

describe("a histogram", () => {
  const tail = [1, 2, 3, 5, 8, 13, 40, 100_000];
  const counts = [10, 10, 10, 10, 10, 10, 10];
  test("of a heavy tail has more than one bar on a logarithmic axis", () => {
    expect(isCrowded(tail, counts)).toBe(true);
    const amounts = rebin(tail, counts, logScale(tail), 24);
    expect(amounts.filter((amount) => amount > 1).length).toBeGreaterThan(5);
    expect(amounts.reduce((sum, amount) => sum + amount, 0)).toBeCloseTo(70);
  });
  test("of values around zero can be logarithmic too", () => {
    const scale = logScale([-1000, -1, 0, 1, 1000]);
    expect(scale.back(scale.to(-1000))).toBeCloseTo(-1000);
    expect(scale.to(0)).toBe(0);
  });
  test("of even values is left linear", () => {
    expect(isCrowded([0, 10, 20, 30], [5, 5, 5])).toBe(false);
  });
});

describe("conditionsOf", () => {
  test("tells which rows are left out, without names of tables", () => {
    const reading = "Average `rentals.Price (EUR)` per `rentals.Shop`, where `rentals.Bike type` is `E bike` or `e.bike`. `rentals` is read as `t`.";
    expect(conditionsOf(reading)).toBe("where Bike type is E bike or e.bike");
  });
  test("joins several, and leaves orders and limits out", () => {
    const reading = "Total `t.n` per `t.a`, `t.b`, where `t.c` is not `x, y`, where `t.d` is known, highest `t.n` first, the first 3.";
    expect(conditionsOf(reading)).toBe("where c is not x, y and d is known");
  });
  test("is empty without any", () => expect(conditionsOf("Total `t.n` per `t.a`.")).toBe(""));
});

test("long cases have a line for each branch, and only white space changes", () => {
  const branch = (n: number) => `WHEN TRIM("t"."Bike type") = 'number ${n}' THEN 'one of many names'`;
  const sql = `SELECT CASE ${branch(1)} ${branch(2)} ELSE "t"."Bike type" END AS "Bike type", SUM(x) AS s FROM t WHERE a IN (${Array.from({ length: 30 }, (_, n) => `'v${n}'`).join(", ")})`;
  const shown = layOutSql(sql);
  expect(shown.replace(/\s+/g, " ")).toBe(sql);
  expect(Math.max(...shown.split("\n").map((line) => line.length))).toBeLessThan(90);
  expect(shown).toContain("\n    ELSE");
});

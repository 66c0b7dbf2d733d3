import { describe, expect, it, test } from "vitest";
import { monthOf, wholeMonths } from "../src/format";
import { barsOf, readChart } from "../src/parts/chart_data";
import { barsOf as histogramBars, stepOf } from "../src/parts/histogram";
import { byNumber } from "../src/parts/grid_pages";
import { toTabs } from "../src/parts/tabs";
import type { ChartSpec, ResultColumn } from "../src/types";

const TWO: ResultColumn[] = [{ name: "region", type: "VARCHAR" }, { name: "total", type: "HUGEINT" }];
const THREE: ResultColumn[] = [{ name: "kind", type: "VARCHAR" }, ...TWO];
const bar = (sort: unknown = "-x", more: object = {}): ChartSpec =>
  ({ mark: { type: "bar" }, encoding: { x: { field: "total", type: "quantitative" }, y: { field: "region", type: "nominal", sort }, ...more } }) as ChartSpec;
const labels = (spec: ChartSpec, columns: ResultColumn[], rows: unknown[][]) => barsOf(readChart(spec, columns, rows) as never).rows.map((row) => row.label);

describe("bars", () => {
  const rows = [["North", 198], ["East", 146], [null, 26], ["West", 78]];
  it("follow the sort of the specification", () => {
    expect(labels(bar("-x"), TWO, rows)).toEqual(["North", "East", "West", "null"]);
    expect(labels(bar("x"), TWO, rows)).toEqual(["null", "West", "East", "North"]);
    expect(labels(bar(null), TWO, rows)).toEqual(["North", "East", "null", "West"]);
    expect(labels(bar("ascending"), TWO, rows)).toEqual(["East", "North", "West", "null"]);
    expect(labels(bar(["West", "North"]), TWO, rows).slice(0, 2)).toEqual(["West", "North"]);
  });
  it("keep an order that the categories have", () => {
    expect(labels(bar("-x"), TWO, [["Tue", 9], ["Mon", 1], ["Sun", 5]])).toEqual(["Mon", "Tue", "Sun"]);
  });
  it("of two categories are grouped, with a colour for each", () => {
    const spec = bar("-x", { color: { field: "kind", type: "nominal" } });
    const made = barsOf(readChart(spec, THREE, [["a", "N", 1], ["b", "N", 2], ["a", "S", 5], ["b", "S", 4]]) as never);
    expect(made.coloured).toBe(true);
    expect(made.rows.map((row) => (row.group ? `${row.label}:` : `${row.label} ${row.value}`))).toEqual(["S:", "a 5", "b 4", "N:", "a 1", "b 2"]);
  });
  it("are stacked if there are many, but not if they are averages", () => {
    const spec = bar("-x", { color: { field: "kind", type: "nominal" } });
    const rows = Array.from({ length: 32 }, (_, at) => [`k${at % 4}`, `r${Math.floor(at / 4)}`, at]);
    const made = barsOf(readChart(spec, THREE, rows) as never);
    expect(made.rows).toHaveLength(8);
    expect(made.rows[0]?.parts).toHaveLength(4);
    const means = { ...spec, encoding: { ...spec.encoding, x: { field: "total", type: "quantitative", title: "avg_total" } } } as ChartSpec;
    expect(barsOf(readChart(means, THREE, rows) as never).rows[0]?.group).toBe(true);
  });
  it("have both names if one category belongs to the other", () => {
    const spec = bar("-x", { color: { field: "kind", type: "nominal" } });
    expect(labels(spec, THREE, [["5b", "Kim", 19], ["7b", "Ada", 16], ["6a", "Tim", 17]])).toEqual(["Kim · 5b", "Tim · 6a", "Ada · 7b"]);
  });
});

describe("other charts", () => {
  const line = { mark: "line", encoding: { x: { field: "day", type: "temporal" }, y: { field: "total", type: "quantitative" } } } as ChartSpec;
  const columns = [{ name: "day", type: "DATE" }, { name: "total", type: "BIGINT" }];
  it("count the rows without a date", () => {
    expect(readChart(line, columns, [["2024-02-01", 1], ["2024-01-01", 2], [null, 3]])).toMatchObject({ left: 1, dates: "month" });
  });
  it("are not drawn if the page cannot draw them", () => {
    expect(readChart({ mark: "rect", encoding: line.encoding } as ChartSpec, columns, [["2024-02-01", 1]])).toBeNull();
    expect(readChart({ ...line, transform: [] } as ChartSpec, columns, [["2024-02-01", 1]])).toBeNull();
    expect(readChart(line, columns, [])).toBeNull();
  });
  it("offer no line for names", () => {
    expect(readChart(bar(), TWO, [["North", 1], ["South", 2]], "line")).toBeNull();
  });
  it("draw rows of their own", () => {
    const own = { ...bar(), data: { values: [{ region: "X", total: 3 }, { region: "Y", total: 4 }] } } as ChartSpec;
    expect(labels(own, columns, [])).toEqual(["Y", "X"]);
  });
});

test("months are written without a day if all dates are the first one", () => {
  expect(wholeMonths("month", ["2024-01-01", "2024-02-01T00:00:00", null])).toBe("month");
  expect(wholeMonths("day", ["2024-01-01", "2024-02-02"])).toBe("day");
  expect(wholeMonths("year", ["2024-01-01", "2025-01-01"])).toBe("year");
  expect(wholeMonths("day", ["2024-01-01"])).toBe("day");
  expect(monthOf("2024-01-01", "month")).toBe("2024-01");
});

test("copied rows have tabs between their values", () => {
  expect(toTabs('a,b\r\n"x, y","say ""hi"""\r\n,2\r\n')).toBe('a\tb\nx, y\t"say ""hi"""\n\t2');
  expect(toTabs("a\n1\n")).toBe("a\n1");
});

describe("a histogram", () => {
  it("has a bar for each value, with its count", () => {
    const bars = histogramBars({ edges: [1, 1.25, 1.5, 2], counts: [4, 8, 2, 6], dates: false, values: true }, 60);
    expect(bars.map((one) => one.amount)).toEqual([4, 8, 2, 6]);
    expect(bars[3]?.from).toBeCloseTo(0.8);
  });
  it("has no bins that are finer than the data", () => {
    expect(stepOf([1, 1.25, 2.5])).toBe(0.25);
    const bars = histogramBars({ edges: [1, 2, 4, 6], counts: [10, 20, 20], dates: false, values: false }, 60);
    expect(bars).toHaveLength(6);
    expect(bars.reduce((sum, one) => sum + one.amount, 0)).toBeCloseTo(50);
  });
});

test("a pie is drawn of few parts of a whole only", () => {
  const columns = [{ name: "kind", type: "VARCHAR" }, { name: "n", type: "BIGINT" }];
  const encoding = { theta: { field: "n", type: "quantitative" }, color: { field: "kind", type: "nominal" } };
  const form = (rows: unknown[][]) => readChart({ mark: "arc", encoding }, columns, rows)?.form;
  expect(form([["a", 3], ["b", 5]])).toBe("pie");
  expect(form([["a", 3], ["b", -5]])).toBe("bars");
  expect(form(Array.from({ length: 9 }, (_, n) => [`k${n}`, n + 1]))).toBe("bars");
  const bars = { mark: "bar", encoding: { x: { field: "kind", type: "nominal" }, y: { field: "n", type: "quantitative", title: "avg_n" } } };
  expect(readChart(bars, columns, [["a", 3], ["b", 5]], "pie")).toBeNull();
});

test("small results are sorted here as the server sorts them", () => {
  expect(byNumber([[1], [null], [3], [2]], 0, true)).toEqual([[3], [2], [1], [null]]);
  expect(byNumber([[1], ["12345678901234567890"]], 0, true)).toBeNull();
});

test("the title of a chart says its measure in words", () => {
  const columns = [{ name: "kind", type: "VARCHAR" }, { name: "sum_Price (EUR)", type: "DOUBLE" }];
  const encoding = { x: { field: "kind", type: "nominal" }, y: { field: "sum_Price (EUR)", type: "quantitative" } };
  expect(readChart({ mark: "bar", encoding }, columns, [["a", 3]])?.title).toBe("Total Price (EUR) by kind");
});

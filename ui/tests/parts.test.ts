import { describe, expect, it } from "vitest";
import { fieldsOf, readForm } from "../src/parts/schema_form";
import { diffLines } from "../src/parts/text_diff";
import { pastedRows } from "../src/views/start/add_data";
import { draw, linksOf } from "../src/views/diagram_layout";

describe("diffLines", () => {
  const shown = (before: string, after: string) => diffLines(before, after).map((line) => `${{ same: " ", add: "+", del: "-" }[line.mark]}${line.text}`);
  it("keeps common lines and marks the others", () => {
    expect(shown("a\nb\nc\nd", "a\nx\nc\nd\ne")).toEqual([" a", "-b", "+x", " c", " d", "+e"]);
  });
  it("gives both texts back", () => {
    const [before, after] = ["one\ntwo\nthree\ntwo", "two\nthree\nfour\ntwo\n"];
    const lines = diffLines(before, after);
    expect(lines.filter((line) => line.mark !== "add").map((line) => line.text).join("\n")).toBe(before);
    expect(lines.filter((line) => line.mark !== "del").map((line) => line.text).join("\n")).toBe(after);
  });
});

describe("a form made of a schema", () => {
  const schema = {
    required: ["source"],
    properties: {
      every_s: { type: "number", default: 60 },
      source: { type: "string" },
      model: { anyOf: [{ type: "string" }, { type: "null" }], default: null },
      mode: { $ref: "#/$defs/Mode" },
      quiet: { type: "boolean", default: false },
      topics: { type: "array", items: { type: "string" } },
      plan: { anyOf: [{ type: "object" }, { type: "null" }] },
    },
    $defs: { Mode: { type: "string", enum: ["now", "later"] } },
  };
  const fields = fieldsOf(schema);
  it("has a control for each type, and what must be filled first", () => {
    expect(fields.map((field) => `${field.name} ${field.control}`)).toEqual([
      "source dataset", "every_s number", "model text", "mode choice", "quiet check", "topics lines", "plan json",
    ]);
  });
  it("sends only what was filled", () => {
    const form = new FormData();
    for (const [name, value] of Object.entries({ source: "shop", every_s: "", model: "", mode: "later", quiet: "on", topics: "a\n\nb", plan: '{"from": "orders"}' })) form.set(`f-${name}`, value);
    expect(readForm(form, fields)).toEqual({ source: "shop", mode: "later", quiet: true, topics: ["a", "b"], plan: { from: "orders" } });
  });
  it("says which field is not JSON", () => {
    const form = new FormData();
    form.set("f-plan", "{not json");
    expect(() => readForm(form, fields)).toThrow("`plan` is not JSON");
  });
});

describe("pastedRows", () => {
  it("takes rows of a spreadsheet or a text", () => {
    expect(pastedRows("a\tb\n1\t2\n")?.name).toBe("pasted_rows.tsv");
    expect(pastedRows("a,b\n1,2")?.name).toBe("pasted_rows.csv");
  });
  it("leaves other texts alone", () => {
    for (const text of ["", "how many orders?", "one line, with a comma", "two lines,\nwithout columns"]) expect(pastedRows(text)).toBeNull();
  });
});

describe("the diagram", () => {
  it("places a hundred tables without one upon another, in a picture that fits a screen's height twice", () => {
    const tables = Array.from({ length: 100 }, (_, index) => ({ name: `t${index}`, foreign_keys: index ? [{ columns: ["x"], to_table: `t${Math.floor(index / 3)}`, to_columns: ["x"], origin: "declared" }] : [] }));
    const links = linksOf(tables);
    expect(links).toHaveLength(99);
    const { place, height } = draw(tables.map((table) => table.name), links);
    expect(new Set([...place.values()].map(({ x, y }) => `${x} ${y}`)).size).toBe(100);
    expect(height).toBeLessThan(800);
  });
  it("leads a line around the tables that it passes", () => {
    const { place, paths } = draw(["lines", "orders", "customers", "products"], [{ from: "lines", to: "orders" }, { from: "orders", to: "customers" }, { from: "lines", to: "products" }]);
    expect(place.size).toBe(4);
    expect(paths[2]).toContain("H");
    expect(paths[2]).not.toContain(` ${(place.get("orders")?.y ?? 0) + 14}H`);
  });
  it("draws tables that refer to each other in a circle", () => {
    const { place } = draw(["a", "b"], [{ from: "a", to: "b" }, { from: "b", to: "a" }]);
    expect(place.size).toBe(2);
  });
});

// The cells of a grid in the document.

import { cell, monthOf } from "../format";
import type { ResultColumn } from "../types";
import { type Slot, Slots } from "./slots";

/** Columns as they are drawn. */
export interface Placed {
  columns: ResultColumn[];
  numeric: boolean[];
  /** Whether the thousands of each column are set apart. */
  grouped: boolean[];
  /** Places after the point that the fractions of each column are padded to. */
  places: number[];
  /** How the dates of each column are written. */
  dates: ("day" | "month" | "year")[];
  lefts: number[];
  widths: number[];
}

/** The part of a grid that is visible: rows and columns from the first up to the last, not included. */
export interface Part {
  first: number;
  last: number;
  from: number;
  to: number;
  placed: Placed;
  selected: readonly [number, number];
  /** Where a row is, in pixels. */
  y: (row: number) => number;
  /** The values of a row; null while they are being loaded. */
  values: (row: number) => unknown[] | null;
}

interface CellSlot extends Slot {
  text: Text;
  value: unknown;
  placed: Placed | null;
  class: string;
}

interface RowSlot extends Slot {
  cells: Slots<CellSlot>;
  y: number;
}

const LOADING = Symbol("a value that is being loaded");

export class GridBody {
  private readonly rows: Slots<RowSlot>;

  constructor(box: HTMLElement) {
    this.rows = new Slots(box, makeRow);
  }

  draw(part: Part): void {
    this.rows.show(part.first, part.last, (slot, row) => {
      const y = part.y(row);
      if (slot.y !== y) slot.element.style.transform = `translateY(${y}px)`;
      slot.y = y;
      if (slot.index !== row) slot.element.setAttribute("aria-rowindex", String(row + 2));
      const values = part.values(row);
      slot.cells.show(part.from, part.to, (filled, column) => fill(filled, column, values, part, row));
    });
  }

  /** Put rows and cells into their order in the document, once they stand still. */
  order(): void {
    this.rows.order();
    for (const row of this.rows.shown()) row.cells.order();
  }
}

function fill(slot: CellSlot, column: number, values: unknown[] | null, part: Part, row: number): void {
  const { placed, selected } = part;
  const moved = slot.index !== column || slot.placed !== placed;
  if (moved) {
    slot.placed = placed;
    slot.element.style.left = `${placed.lefts[column]}px`;
    slot.element.style.width = `${placed.widths[column]}px`;
    slot.element.setAttribute("aria-colindex", String(column + 1));
  }
  const value = values === null ? LOADING : values[column];
  if (moved || slot.value !== value) {
    slot.value = value;
    slot.text.data = value === LOADING ? "…" : monthOf(cell(value, (placed.columns[column] as ResultColumn).type, placed.places[column], placed.grouped[column]), value === null ? "day" : (placed.dates[column] ?? "day"));
  }
  const here = selected[0] === row && selected[1] === column;
  const look = `c${placed.numeric[column] ? " n" : ""}${value === null || value === undefined ? " null" : ""}${here ? " sel" : ""}`;
  if (slot.class === look) return;
  slot.class = look;
  slot.element.className = look;
  slot.element.setAttribute("aria-selected", String(here));
}

function makeRow(): RowSlot {
  const element = document.createElement("div");
  element.className = "r";
  element.setAttribute("role", "row");
  return { element, index: -1, y: -1, cells: new Slots(element, makeCell) };
}

function makeCell(): CellSlot {
  const element = document.createElement("div");
  const text = document.createTextNode("");
  element.setAttribute("role", "gridcell");
  element.append(text);
  return { element, index: -1, text, value: undefined, placed: null, class: "" };
}

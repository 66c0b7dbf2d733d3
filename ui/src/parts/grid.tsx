// The result grid: any number of rows and columns, of which only the visible ones are in the document.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError } from "../api";
import { cell, count, counted, isFloat, isNumeric, namesThings, placesOf, wholeMonths } from "../format";
import type { ResultColumn, ResultInfo } from "../types";
import { Copy } from "./copy";
import { useFocus } from "./focus";
import { GridBody, type Placed } from "./grid_body";
import { GridPages, PAGE, type View } from "./grid_pages";
import { Failure } from "./loading";
import { toTabs } from "./tabs";

const ROW = 28;
const HEAD = 44;
const TALLEST = 8_000_000;
/** Browsers cannot scroll much further, so more rows share the pixels of this height. */
const OVERSCAN = 3;
const SAMPLE = 60;
/** Scrolling that pauses this long has ended. */
const STILL_MS = 250;
/** Rows that fit a clipboard. */
const COPIED = 20_000;
const OPERATORS: [string, string][] = [
  ["contains", "contains"],
  ["eq", "="],
  ["ne", "≠"],
  ["lt", "<"],
  ["le", "≤"],
  ["gt", ">"],
  ["ge", "≥"],
  ["starts", "starts with"],
  ["null", "is null"],
  ["notnull", "is not null"],
];

export interface Cell {
  row: number;
  column: ResultColumn;
  value: unknown;
}

interface Props {
  path: string;
  info: ResultInfo;
  name: string;
  onCell?: (cell: Cell) => void;
  /** The order to begin with, such as that of the chart above. */
  sort?: string[];
}

/** How each result was last sorted and filtered, kept while the page is open. */
const VIEWS = new Map<string, View>();

export function Grid({ path, info, name, onCell, sort = [] }: Props) {
  const [view, setViewNow] = useState<View>(VIEWS.get(path) ?? { sort, filter: [] });
  const setView = (next: View) => {
    VIEWS.set(path, next);
    setViewNow(next);
  };
  const last = useRef<GridPages | null>(null);
  const [version, redraw] = useState(0);
  const [error, setError] = useState<ApiError | null>(null);
  const [filtering, setFiltering] = useState(false);
  const pages = useMemo(
    () =>
      new GridPages(path, view, (failed) => {
        if (failed) setError(failed instanceof ApiError ? failed : new ApiError({ detail: String(failed) }, 0));
        else setError(null);
        redraw((before) => before + 1);
      }, last.current, info.row_count <= PAGE ? info.columns : null),
    [path, view],
  );
  last.current = pages;
  useEffect(() => () => pages.close(), [pages]);
  const rows = pages.rowCount ?? pages.countBefore ?? (view.filter.length ? 0 : info.row_count);
  return (
    <section class="grid-part" aria-label={`Rows of ${name}`}>
      <div class="hd">
        <h3>Rows</h3>
        <span class="acts">
          <button type="button" class="link" aria-expanded={filtering} onClick={() => setFiltering(!filtering)}>
            Filter
          </button>
          {rows <= COPIED && <Copy text={async () => toTabs(await (await fetch(pages.file("csv"))).text())} label="Copy the rows, for a spreadsheet">Copy</Copy>}
          <a class="link" href={pages.file("csv")} download>CSV</a>
          <a class="link" href={pages.file("parquet")} download>Parquet</a>
        </span>
      </div>
      {filtering && <Filter columns={info.columns} onAdd={(condition) => setView({ ...view, filter: [...view.filter, condition] })} />}
      {view.filter.length > 0 && (
        <div class="acts conditions">
          {view.filter.map((condition) => (
            <button type="button" class="tag" key={condition} aria-label={`Remove the filter ${condition}`}
              onClick={() => setView({ ...view, filter: view.filter.filter((other) => other !== condition) })}>
              {condition.replaceAll(":", " ")} ×
            </button>
          ))}
        </div>
      )}
      {error && <Failure error={error} again={() => setView({ ...view })} />}
      <Rows pages={pages} version={version} rows={rows} columns={info.columns} view={view} setView={setView} name={name} onCell={onCell} />
      <p class="note">{footer(rows, info, view)}</p>
    </section>
  );
}

function footer(rows: number, info: ResultInfo, view: View): string {
  const all = view.filter.length ? `${count(rows)} of ${counted(info.row_count, "row")} pass the filter` : counted(rows, "row");
  const cut = info.truncated ? "the query was asked for its first rows only: there may be more" : "nothing truncated";
  return `${all} · ${counted(info.columns.length, "column")} · ${cut}`;
}

interface RowsProps {
  pages: GridPages;
  /** Changes when pages have arrived, so that the rows are drawn again. */
  version: number;
  rows: number;
  columns: ResultColumn[];
  view: View;
  setView: (view: View) => void;
  name: string;
  onCell: ((cell: Cell) => void) | undefined;
}

function Rows({ pages, rows, columns, view, setView, name, onCell }: RowsProps) {
  const box = useRef<HTMLDivElement>(null);
  const bodyBox = useRef<HTMLDivElement>(null);
  const body = useRef<GridBody | null>(null);
  const selected = useRef<[number, number]>([0, 0]);
  const size = useRef({ height: 400, width: 600 });
  const [[from, to], setColumns] = useState<[number, number]>([0, 0]);
  const measured = pages.row(0) !== null;
  const placed = useMemo(() => placeColumns(columns, pages, rows), [columns, pages, measured, rows]);
  const { lefts } = placed;
  const height = Math.min(rows * ROW, TALLEST);
  const squeezed = rows * ROW > TALLEST;

  /** The row at the upper edge in pixels of a list that is as tall as its rows, and the way back. */
  const range = () => Math.max(1, height - size.current.height);
  const furthest = () => Math.max(0, rows * ROW - size.current.height);
  const topOf = (scrolled: number) => (squeezed ? (Math.min(scrolled, range()) / range()) * furthest() : scrolled);
  const scrolledTo = (top: number) => (squeezed ? (top / Math.max(1, furthest())) * range() : top);
  const visible = () => Math.ceil(size.current.height / ROW) + 1;

  const draw = () => {
    const element = box.current;
    if (!element || !bodyBox.current) return;
    const { scrollTop, scrollLeft } = element;
    const top = topOf(scrollTop);
    const first = Math.max(0, Math.min(Math.floor(top / ROW), rows - 1) - OVERSCAN);
    const last = Math.min(rows, first + visible() + 2 * OVERSCAN);
    const left = Math.max(0, columnAt(lefts, scrollLeft) - 1);
    const right = Math.min(columns.length, columnAt(lefts, scrollLeft + size.current.width) + 2);
    body.current ??= new GridBody(bodyBox.current);
    body.current.draw({
      first, last, from: left, to: right, placed, selected: selected.current,
      y: (row) => (squeezed ? scrollTop + row * ROW - top : row * ROW),
      values: (row) => pages.row(row),
    });
    setColumns((before) => (before[0] === left && before[1] === right ? before : [left, right]));
    pages.look(first, Math.max(first, last - 1));
  };
  const latest = useRef(draw);
  latest.current = draw;
  useLayoutEffect(draw); // rows that have arrived, another order, other widths
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    let frame = 0;
    let still = 0;
    const later = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        latest.current();
      });
      clearTimeout(still);
      still = window.setTimeout(() => body.current?.order(), STILL_MS);
    };
    const measure = () => {
      size.current = { height: element.clientHeight - HEAD, width: element.clientWidth };
      later();
    };
    measure();
    latest.current();
    element.addEventListener("scroll", later, { passive: true });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => {
      element.removeEventListener("scroll", later);
      observer.disconnect();
      cancelAnimationFrame(frame);
      clearTimeout(still);
    };
  }, []);

  const show = (row: number, column: number) => {
    const element = box.current;
    const next: [number, number] = [clamp(row, rows), clamp(column, columns.length)];
    selected.current = next;
    if (!element) return;
    const top = topOf(element.scrollTop);
    const wanted = next[0] * ROW;
    const upTo = wanted - size.current.height + ROW;
    const target = wanted < top ? wanted : upTo > top ? upTo : null;
    if (target !== null) element.scrollTop = scrolledTo(target);
    const left = lefts[next[1]] ?? 0;
    const right = lefts[next[1] + 1] ?? left;
    if (left < element.scrollLeft) element.scrollLeft = left;
    else if (right > element.scrollLeft + size.current.width) element.scrollLeft = right - size.current.width;
    draw();
  };
  const open = (row: number, column: number) => {
    const found = columns[column];
    const values = pages.row(row);
    if (found && values) onCell?.({ row, column: found, value: values[column] });
  };
  const click = (event: MouseEvent) => {
    const found = event.target instanceof Element ? event.target.closest("[role=gridcell]") : null;
    const row = Number(found?.parentElement?.getAttribute("aria-rowindex")) - 2;
    const column = Number(found?.getAttribute("aria-colindex")) - 1;
    if (!found || row < 0) return;
    selected.current = [row, column];
    draw();
    open(row, column);
  };
  const key = (event: KeyboardEvent) => {
    const [row, column] = selected.current;
    const page = visible() - 2;
    const moves: Record<string, [number, number]> = {
      ArrowDown: [row + 1, column],
      ArrowUp: [row - 1, column],
      ArrowRight: [row, column + 1],
      ArrowLeft: [row, column - 1],
      PageDown: [row + page, column],
      PageUp: [row - page, column],
      Home: [event.ctrlKey ? 0 : row, 0],
      End: [event.ctrlKey ? rows - 1 : row, columns.length - 1],
    };
    const move = moves[event.key];
    if (move) {
      event.preventDefault();
      show(...move);
    } else if (event.key === "Enter") open(row, column);
    else if (event.key === "c" && (event.ctrlKey || event.metaKey) && !getSelection()?.toString()) {
      const value = pages.row(row)?.[column];
      void navigator.clipboard.writeText(value === null || value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value));
    }
  };
  const sorted = (column: ResultColumn) =>
    view.sort[0] === column.name ? "ascending" : view.sort[0] === `-${column.name}` ? "descending" : "none";
  const sort = (column: ResultColumn) => {
    // Of numbers the highest are wanted first, of other values the first.
    const orders = isNumeric(column.type) ? ["descending", "ascending", "none"] : ["ascending", "descending", "none"];
    const next = orders[(orders.indexOf(sorted(column)) + 1) % 3];
    setView({ ...view, sort: next === "none" ? [] : [next === "ascending" ? column.name : `-${column.name}`] });
    if (box.current) box.current.scrollTop = 0;
  };
  // A bar to scroll sideways must not cover the last row.
  const wide = (lefts.at(-1) as number) > size.current.width;
  const fits = Math.min(height, 24 * ROW) + HEAD + (wide ? 14 : 2);
  return (
    <div class="vgrid" ref={box} role="grid" tabIndex={0} aria-label={name} aria-rowcount={rows + 1}
      aria-colcount={columns.length} aria-busy={pages.rowCount === null} style={{ height: `${fits}px` }} onKeyDown={key}>
      <div class="vhead" role="row" aria-rowindex={1} style={{ width: `${lefts.at(-1)}px` }}>
        {columns.slice(from, to).map((column, offset) => (
          <div key={from + offset} role="columnheader" aria-colindex={from + offset + 1} aria-sort={sorted(column)}
            class={placed.numeric[from + offset] ? "c n" : "c"}
            style={{ left: `${lefts[from + offset]}px`, width: `${placed.widths[from + offset]}px` }}>
            <button type="button" onClick={() => sort(column)} title={`Sort by ${column.name}`}>
              {column.name}
              {sorted(column) === "ascending" ? " ↑" : sorted(column) === "descending" ? " ↓" : ""}
              <small>{column.type.toLowerCase()}</small>
            </button>
          </div>
        ))}
      </div>
      <div class="vbody" role="rowgroup" ref={bodyBox} onClick={click} style={{ height: `${height}px`, width: `${lefts.at(-1)}px` }} />
    </div>
  );
}

function clamp(value: number, size: number): number {
  return Math.max(0, Math.min(value, size - 1));
}

/** The column at this distance from the left edge, or the last one. */
function columnAt(lefts: number[], x: number): number {
  let [low, high] = [0, Math.max(0, lefts.length - 2)];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((lefts[middle] as number) <= x) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Columns one beside the other, as wide as their names and first values need. */
function placeColumns(columns: ResultColumn[], pages: GridPages, rows: number): Placed {
  const sample: unknown[][] = [];
  for (let row = 0; row < SAMPLE; row += 1) sample.push(pages.row(row) ?? []);
  const places = columns.map((column, index) => (isFloat(column.type) ? placesOf(sample.map((values) => values[index])) : 0));
  // Only if all rows are here: otherwise a day may follow.
  const dates = columns.map((column, index) =>
    rows > 0 && rows <= PAGE && /^(date|timestamp)/i.test(column.type)
      ? wholeMonths(column.name, Array.from({ length: rows }, (_, row) => pages.row(row)?.[index] ?? null))
      : "day");
  const widths = columns.map((column, index) => {
    let longest = Math.max(column.name.length + 2, column.type.length);
    for (const values of sample) if (values.length > 0) longest = Math.max(longest, cell(values[index], column.type, places[index]).length);
    return Math.round(Math.max(64, Math.min(320, longest * 7.4 + 26)));
  });
  const lefts = [0];
  for (const width of widths) lefts.push((lefts.at(-1) as number) + width);
  return { columns, numeric: columns.map((column) => isNumeric(column.type)), grouped: columns.map((column) => !namesThings(column.name)), places, dates, lefts, widths };
}

function Filter({ columns, onAdd }: { columns: ResultColumn[]; onAdd: (condition: string) => void }) {
  const value = useFocus();
  const add = (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const operator = String(form.get("operator"));
    const compared = operator.endsWith("null") ? "" : String(form.get("value"));
    onAdd(`${String(form.get("column"))}:${operator}:${compared}`);
    const box = (event.currentTarget as HTMLFormElement).elements.namedItem("value");
    if (box instanceof HTMLInputElement) box.value = "";
  };
  return (
    <form class="acts filter" onSubmit={add}>
      <select name="column" aria-label="Column">
        {columns.map((column) => <option key={column.name}>{column.name}</option>)}
      </select>
      <select name="operator" aria-label="Comparison">
        {OPERATORS.map(([value, word]) => <option key={value} value={value}>{word}</option>)}
      </select>
      <input ref={value} name="value" aria-label="Value" autoComplete="off" />
      <button type="submit">Add</button>
    </form>
  );
}

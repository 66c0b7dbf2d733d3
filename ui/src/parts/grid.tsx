// The result grid: any number of rows and columns, of which only the visible ones are in the document.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError } from "../api";
import { cell, count, counted, isNumeric } from "../format";
import type { ResultColumn, ResultInfo } from "../types";
import { Copy } from "./copy";
import { GridPages, type View } from "./grid_pages";
import { Failure } from "./loading";

const ROW = 28;
const HEAD = 44;
const TALLEST = 8_000_000;
/** Browsers cannot scroll much further, so more rows share the pixels of this height. */
const OVERSCAN = 6;
const SAMPLE = 60;
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
}

export function Grid({ path, info, name, onCell }: Props) {
  const [view, setView] = useState<View>({ sort: [], filter: [] });
  const [version, redraw] = useState(0);
  const [error, setError] = useState<ApiError | null>(null);
  const [filtering, setFiltering] = useState(false);
  const pages = useMemo(
    () =>
      new GridPages(path, view, (failed) => {
        if (failed) setError(failed instanceof ApiError ? failed : new ApiError({ detail: String(failed) }, 0));
        else setError(null);
        redraw((before) => before + 1);
      }),
    [path, view],
  );
  useEffect(() => () => pages.close(), [pages]);
  const rows = pages.rowCount ?? (view.filter.length ? 0 : info.row_count);
  return (
    <section class="grid-part" aria-label={`Rows of ${name}`}>
      <div class="hd">
        <h3>Rows</h3>
        <span class="acts">
          <button type="button" class="link" aria-expanded={filtering} onClick={() => setFiltering(!filtering)}>
            Filter
          </button>
          {rows <= COPIED && <Copy text={async () => await (await fetch(pages.file("csv"))).text()}>Copy</Copy>}
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
  const [scroll, setScroll] = useState({ top: 0, left: 0, height: 400, width: 600 });
  const [selected, setSelected] = useState<[number, number]>([0, 0]);
  const measured = pages.row(0) !== null;
  const widths = useMemo(() => columnWidths(columns, pages), [columns, pages, measured]);
  const lefts = useMemo(() => widths.reduce<number[]>((sums, width) => [...sums, (sums.at(-1) ?? 0) + width], [0]), [widths]);
  const height = Math.min(rows * ROW, TALLEST);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const read = () =>
      setScroll({ top: element.scrollTop, left: element.scrollLeft, height: element.clientHeight - HEAD, width: element.clientWidth });
    read();
    let frame = 0;
    const later = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        read();
      });
    };
    element.addEventListener("scroll", later, { passive: true });
    const observer = new ResizeObserver(later);
    observer.observe(element);
    return () => {
      element.removeEventListener("scroll", later);
      observer.disconnect();
      cancelAnimationFrame(frame);
    };
  }, []);
  const visible = Math.ceil(scroll.height / ROW) + 1;
  const range = Math.max(1, height - scroll.height);
  const furthest = Math.max(0, rows * ROW - scroll.height);
  const exactTop = (Math.min(scroll.top, range) / range) * furthest;
  const top = rows * ROW <= TALLEST ? scroll.top : exactTop;
  const first = Math.max(0, Math.min(Math.floor(top / ROW), rows - 1) - OVERSCAN);
  const last = Math.min(rows, first + visible + 2 * OVERSCAN);
  const from = Math.max(0, lefts.findIndex((left) => left > scroll.left) - 1);
  const beyond = lefts.findIndex((left) => left > scroll.left + scroll.width);
  const to = beyond < 0 ? columns.length : Math.min(columns.length, beyond);
  useEffect(() => pages.look(first, Math.max(first, last - 1)), [pages, first, last]);

  const show = (row: number, column: number) => {
    const element = box.current;
    const next: [number, number] = [clamp(row, rows), clamp(column, columns.length)];
    setSelected(next);
    if (!element) return;
    const wanted = next[0] * ROW;
    const upTo = wanted - scroll.height + ROW;
    const target = wanted < top ? wanted : upTo > top ? upTo : null;
    if (target !== null) element.scrollTop = rows * ROW <= TALLEST ? target : (target / Math.max(1, furthest)) * range;
    const left = lefts[next[1]] ?? 0;
    const right = lefts[next[1] + 1] ?? left;
    if (left < scroll.left) element.scrollLeft = left;
    else if (right > scroll.left + scroll.width) element.scrollLeft = right - scroll.width;
  };
  const open = (row: number, column: number) => {
    const found = columns[column];
    const values = pages.row(row);
    if (found && values) onCell?.({ row, column: found, value: values[column] });
  };
  const key = (event: KeyboardEvent) => {
    const [row, column] = selected;
    const moves: Record<string, [number, number]> = {
      ArrowDown: [row + 1, column],
      ArrowUp: [row - 1, column],
      ArrowRight: [row, column + 1],
      ArrowLeft: [row, column - 1],
      PageDown: [row + visible - 2, column],
      PageUp: [row - visible + 2, column],
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
  const shown = [];
  for (let row = first; row < last; row += 1) {
    const values = pages.row(row);
    const cells = [];
    for (let index = from; index < to; index += 1) {
      const column = columns[index] as ResultColumn;
      const value = values?.[index];
      const here = selected[0] === row && selected[1] === index;
      cells.push(
        <div key={index} role="gridcell" aria-colindex={index + 1} aria-selected={here}
          class={`c${isNumeric(column.type) ? " n" : ""}${values && (value === null || value === undefined) ? " null" : ""}${here ? " sel" : ""}`}
          style={{ left: `${lefts[index]}px`, width: `${widths[index]}px` }}
          onClick={() => {
            setSelected([row, index]);
            open(row, index);
          }}>
          {values ? cell(value, column.type) : "…"}
        </div>,
      );
    }
    const y = rows * ROW <= TALLEST ? row * ROW : scroll.top + row * ROW - top;
    shown.push(
      <div key={row} role="row" aria-rowindex={row + 2} class="r" style={{ transform: `translateY(${y}px)` }}>
        {cells}
      </div>,
    );
  }
  const sorted = (column: ResultColumn) =>
    view.sort[0] === column.name ? "ascending" : view.sort[0] === `-${column.name}` ? "descending" : "none";
  const sort = (column: ResultColumn) => {
    const now = sorted(column);
    setView({ ...view, sort: now === "none" ? [column.name] : now === "ascending" ? [`-${column.name}`] : [] });
    if (box.current) box.current.scrollTop = 0;
  };
  const fits = Math.min(height, 24 * ROW) + HEAD + 2;
  return (
    <div class="vgrid" ref={box} role="grid" tabIndex={0} aria-label={name} aria-rowcount={rows + 1}
      aria-colcount={columns.length} style={{ height: `${fits}px` }} onKeyDown={key}>
      <div class="vhead" role="row" aria-rowindex={1} style={{ width: `${lefts.at(-1)}px` }}>
        {columns.slice(from, to).map((column, offset) => (
          <div key={from + offset} role="columnheader" aria-colindex={from + offset + 1} aria-sort={sorted(column)}
            class={`c${isNumeric(column.type) ? " n" : ""}`}
            style={{ left: `${lefts[from + offset]}px`, width: `${widths[from + offset]}px` }}>
            <button type="button" onClick={() => sort(column)} title={`Sort by ${column.name}`}>
              {column.name}
              {sorted(column) === "ascending" ? " ↑" : sorted(column) === "descending" ? " ↓" : ""}
              <small>{column.type.toLowerCase()}</small>
            </button>
          </div>
        ))}
      </div>
      <div class="vbody" role="rowgroup" style={{ height: `${height}px`, width: `${lefts.at(-1)}px` }}>
        {shown}
      </div>
    </div>
  );
}

function clamp(value: number, size: number): number {
  return Math.max(0, Math.min(value, size - 1));
}

/** Widths that fit the names and the first values. */
function columnWidths(columns: ResultColumn[], pages: GridPages): number[] {
  return columns.map((column, index) => {
    let longest = Math.max(column.name.length + 2, column.type.length);
    for (let row = 0; row < SAMPLE; row += 1) {
      const values = pages.row(row);
      if (values) longest = Math.max(longest, cell(values[index], column.type).length);
    }
    return Math.round(Math.max(64, Math.min(320, longest * 7.4 + 22)));
  });
}

function Filter({ columns, onAdd }: { columns: ResultColumn[]; onAdd: (condition: string) => void }) {
  const add = (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const operator = String(form.get("operator"));
    const value = operator.endsWith("null") ? "" : String(form.get("value"));
    onAdd(`${String(form.get("column"))}:${operator}:${value}`);
  };
  return (
    <form class="acts filter" onSubmit={add}>
      <select name="column" aria-label="Column">
        {columns.map((column) => <option key={column.name}>{column.name}</option>)}
      </select>
      <select name="operator" aria-label="Comparison">
        {OPERATORS.map(([value, word]) => <option key={value} value={value}>{word}</option>)}
      </select>
      <input name="value" aria-label="Value" autoComplete="off" />
      <button type="submit">Add</button>
    </form>
  );
}

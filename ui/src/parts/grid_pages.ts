// The rows of a result as pages from the server: loaded when they are looked at, the last fifty kept.

import { call } from "../api";
import { isNumeric } from "../format";
import type { ResultColumn, RowPage } from "../types";

export const PAGE = 200;
const KEPT = 50;
/** Requests at a time. The next ones wait: ending those of places that were scrolled past costs more than their rows. */
const AT_ONCE = 2;

export interface View {
  sort: string[];
  filter: string[];
}

export class GridPages {
  private readonly pages = new Map<number, RowPage>();
  private readonly asked = new Map<number, AbortController>();
  /** Pages that could not be read: they are tried again once somebody has looked elsewhere. */
  private readonly failed = new Set<number>();
  private wanted: number[] = [];
  rowCount: number | null = null;

  constructor(
    private readonly path: string,
    private readonly view: View,
    private readonly onChange: (error?: unknown) => void,
    /** The rows in the order before, which are shown until the first new ones are here. */
    private before: GridPages | null = null,
    /** The columns of a result that one page holds: numbers of it are sorted here, without a request. */
    private readonly columns: ResultColumn[] | null = null,
  ) {}

  row(index: number): unknown[] | null {
    const page = this.pages.get(Math.floor(index / PAGE));
    return page?.rows[index % PAGE] ?? this.before?.row(index) ?? null;
  }

  get countBefore(): number | null {
    return this.before === null ? null : (this.before.rowCount ?? this.before.countBefore);
  }

  /** Load the pages of these rows. While a person scrolls fast, only the newest place is loaded next. */
  look(from: number, to: number): void {
    this.wanted = [];
    for (let page = Math.floor(from / PAGE); page <= Math.floor(Math.max(from, to) / PAGE); page += 1) this.wanted.push(page);
    for (const page of this.failed) if (!this.wanted.includes(page)) this.failed.delete(page);
    this.loadWanted();
  }

  private loadWanted(): void {
    for (const page of this.wanted) {
      if (this.asked.size >= AT_ONCE) return;
      if (!this.pages.has(page) && !this.asked.has(page) && !this.failed.has(page)) void this.load(page);
    }
  }

  address(): string {
    const query = new URLSearchParams();
    for (const column of this.view.sort) query.append("sort", column);
    for (const condition of this.view.filter) query.append("filter", condition);
    const asked = query.toString();
    return asked ? `${this.path}${this.path.includes("?") ? "&" : "?"}${asked}` : this.path;
  }

  /** Read the only page and sort it by its column of numbers; null if the server has to sort. */
  private async sortHere(abort: AbortSignal): Promise<RowPage | null> {
    const [name = "", ...others] = this.view.sort;
    if (!this.columns || others.length > 0 || this.view.filter.length > 0) return null;
    const at = this.columns.findIndex((column) => isNumeric(column.type) && (column.name === name || `-${column.name}` === name));
    if (at < 0) return null;
    const page = await this.read(this.path, 0, abort);
    const rows = byNumber(page.rows, at, name !== this.columns[at]?.name);
    return rows && { ...page, rows };
  }

  /** The address of all these rows as a file. */
  file(format: "csv" | "parquet"): string {
    const address = this.address();
    return `/api${address}${address.includes("?") ? "&" : "?"}format=${format}`;
  }

  close(): void {
    this.wanted = [];
    for (const request of this.asked.values()) request.abort();
  }

  private async load(page: number): Promise<void> {
    const request = new AbortController();
    this.asked.set(page, request);
    try {
      const rows = (await this.sortHere(request.signal)) ?? (await this.read(this.address(), page * PAGE, request.signal));
      this.rowCount = rows.row_count;
      this.before = null;
      this.pages.set(page, rows);
      const oldest = this.pages.keys().next().value;
      if (this.pages.size > KEPT && oldest !== undefined) this.pages.delete(oldest);
      this.asked.delete(page);
      this.onChange();
    } catch (error) {
      this.asked.delete(page);
      if (request.signal.aborted) return;
      this.failed.add(page);
      this.before = null;
      this.onChange(error);
    }
    this.loadWanted();
  }

  /** A page with large values ends early: its rest is read with further requests. */
  private async read(path: string, offset: number, abort: AbortSignal): Promise<RowPage> {
    const address = `${path}${path.includes("?") ? "&" : "?"}limit=${PAGE}&offset=`;
    const first = await call<RowPage>("GET", address + offset, undefined, abort);
    let rows = first.rows;
    while (rows.length < PAGE && offset + rows.length < first.row_count) {
      const more = await call<RowPage>("GET", address + (offset + rows.length), undefined, abort);
      if (more.rows.length === 0) break;
      rows = rows.concat(more.rows.slice(0, PAGE - rows.length));
    }
    return { ...first, rows };
  }
}

/** Rows by a column of numbers, null last, as the server sorts them; null if a value is text, such as a number too large for JSON. */
export function byNumber(rows: unknown[][], column: number, descending: boolean): unknown[][] | null {
  if (!rows.every((row) => row[column] === null || typeof row[column] === "number")) return null;
  return rows.toSorted((one, other) => {
    const [a, b] = [one[column], other[column]];
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    return (Number(a) - Number(b)) * (descending ? -1 : 1);
  });
}

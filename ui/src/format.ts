// How values are written: exact, with a real minus sign, and null as a word.

const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const SHORT = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

export function count(value: number): string {
  return COUNT.format(value).replace("-", "−");
}

export function counted(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

export function short(value: number): string {
  return SHORT.format(value).replace("-", "−");
}

/** A number beside an axis: round, so large ones can be written short. */
export function axisNumber(value: number): string {
  return Math.abs(value) >= 1e6 ? COMPACT.format(value).replace("-", "−") : fraction(value);
}

export function duration(ms: number): string {
  if (ms === 0) return "0 ms";
  if (ms < 1) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 120) return `${minutes} min ${Math.round((ms % 60_000) / 1000)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function bytes(size: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = size;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toPrecision(3)} ${units[unit]}`;
}

export function clock(iso: string): string {
  return new Date(iso).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}

export function moment(iso: string): string {
  const at = new Date(iso);
  return `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" })}, ${clock(iso)}`;
}

/** A moment in a list: the time alone today, without the year this year. */
export function when(iso: string, now = new Date()): string {
  const at = new Date(iso);
  if (at.toDateString() === now.toDateString()) return clock(iso);
  if (at.getFullYear() !== now.getFullYear()) return moment(iso);
  return `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })}, ${clock(iso)}`;
}

/** "Today", "Yesterday", "Last week", or the month, for groups of a list by time. */
export function period(iso: string, now = new Date()): string {
  const at = new Date(iso);
  const day = (date: Date) => new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
  const days = Math.round((day(now) - day(at)) / 86_400_000);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days < 8) return "Last week";
  return at.toLocaleDateString("en-GB", { month: "long", year: "numeric" });
}

/** Whether values of this type are written flush right. */
export function isNumeric(type: string): boolean {
  return /^(u?(tiny|small|big|huge)?int|u?int\d|integer|float|double|decimal|numeric|real|money)/i.test(type);
}

/** Whether values of this type carry binary fractions, whose last digits mean nothing. */
export function isFloat(type: string): boolean {
  return /^(float|double|real)/i.test(type);
}

/** Whether the whole numbers of a column are names, such as years, ids and booking numbers: they are written without commas. */
export function namesThings(column: string): boolean {
  return /(^|[_\s.-]|[a-z](?=I|Y))(id|year|yr|zip|plz|postcode|code)$/i.test(column) || /[\p{L}\d][_\s.-]+(no|nr|num|number|ref|reference)[.#]?$/iu.test(column);
}

/** Places after the point that a grid and its chart show of a fraction. */
const PLACES = 4;

/** The places that fractions of one column or chart need to be written alike. */
export function placesOf(values: Iterable<unknown>): number {
  let most = 0;
  for (const value of values) if (typeof value === "number" && isPlain(value)) most = Math.max(most, ownPlaces(value));
  return most;
}

/** A fraction with at least `places` and at most four places; smaller ones with four digits. */
export function fraction(value: number, places = 0): string {
  if (!isPlain(value)) return (value !== 0 && Math.abs(value) < 0.01 ? String(Number(value.toPrecision(4))) : String(value)).replace("-", "−");
  const [whole = "", rest] = value.toFixed(Math.max(Math.min(places, PLACES), ownPlaces(value))).split(".");
  return (whole.replace(/\B(?=(\d{3})+$)/g, ",") + (rest === undefined ? "" : `.${rest}`)).replace(/^-(?=[0,.]*$)/, "").replace("-", "−");
}

function isPlain(value: number): boolean {
  const size = Math.abs(value);
  return size === 0 || (size >= 0.01 && size < 1e15);
}

function ownPlaces(value: number): number {
  return String(Number(value.toFixed(PLACES))).split(".")[1]?.length ?? 0;
}

/** The text of a cell. Only binary fractions are rounded, to four places; a click on a cell shows every digit. */
export function cell(value: unknown, type: string, places = 0, grouped = true): string {
  if (value === null || value === undefined) return "null";
  if (typeof value === "number") {
    if (isFloat(type)) return fraction(value, places);
    const [whole = "", rest] = (Object.is(value, -0) ? "0" : String(value)).split(".");
    if (!isNumeric(type) || whole.includes("e") || rest?.includes("e")) return String(value).replace("-", "−");
    return ((grouped ? whole.replace(/\B(?=(\d{3})+$)/g, ",") : whole) + (rest === undefined ? "" : `.${rest}`)).replace("-", "−");
  }
  if (typeof value === "string") return value;
  return JSON.stringify(value);
}

/** How the dates of a column are written: as months if all of them are the first day of one, as years if its name says so. */
export function wholeMonths(name: string, values: Iterable<unknown>): "day" | "month" | "year" {
  const seen = new Set<string>();
  let years = /year|yr|jahr/i.test(name);
  for (const value of values) {
    if (value === null || value === undefined) continue;
    const found = /^\d{4}-(\d\d)-01(?:[T ]00:00(?::00(?:\.0+)?)?(?:Z|\+00(?::?00)?)?)?$/.exec(String(value));
    if (!found) return "day";
    years &&= found[1] === "01";
    seen.add(String(value));
  }
  return seen.size < 2 ? "day" : years ? "year" : "month";
}

/** A date without the parts that say nothing. */
export function monthOf(value: string, dates: "day" | "month" | "year"): string {
  return dates === "month" ? value.slice(0, 7) : dates === "year" ? value.slice(0, 4) : value;
}

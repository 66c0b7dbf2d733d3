// How values are written: exact, with a real minus sign, and null as a word.

const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
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

/** The text of a cell. Nothing is rounded: what the server sent is what is shown. */
export function cell(value: unknown, type: string): string {
  if (value === null || value === undefined) return "null";
  if (typeof value === "number") {
    const [whole = "", rest] = (Object.is(value, -0) ? "0" : String(value)).split(".");
    if (!isNumeric(type) || whole.includes("e") || rest?.includes("e")) return String(value).replace("-", "−");
    return (whole.replace(/\B(?=(\d{3})+$)/g, ",") + (rest === undefined ? "" : `.${rest}`)).replace("-", "−");
  }
  if (typeof value === "string") return value;
  return JSON.stringify(value);
}

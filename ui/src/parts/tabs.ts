/** CSV as text with tabs between the values, which spreadsheets paste into cells. */
export function toTabs(csv: string): string {
  const rows: string[][] = [[]];
  // A value is quoted, with doubled quotes inside, or plain; a comma or the end of a line follows.
  for (const [, quoted, plain, end] of csv.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r?\n|$)/g)) {
    const value = quoted === undefined ? (plain ?? "") : quoted.replaceAll('""', '"');
    (rows.at(-1) as string[]).push(/[\t\r\n"]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
    if (end === "") break;
    if (end !== ",") rows.push([]);
  }
  if (rows.at(-1)?.length === 1 && rows.at(-1)?.[0] === "") rows.pop();
  return rows.map((row) => row.join("\t")).join("\n");
}

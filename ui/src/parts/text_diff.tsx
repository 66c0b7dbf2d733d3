// Two versions of a text, line by line.

export interface DiffLine {
  mark: "same" | "add" | "del";
  text: string;
}

const LONGEST = 1500;

/** Return the lines of both texts in order. Texts with very many changed lines are shown as all removed, all added. */
export function diffLines(before: string, after: string): DiffLine[] {
  const [old, now] = [before.split("\n"), after.split("\n")];
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head += 1;
  let tail = 0;
  while (tail < old.length - head && tail < now.length - head && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail += 1;
  const middle = between(old.slice(head, old.length - tail), now.slice(head, now.length - tail));
  const same = (lines: string[]): DiffLine[] => lines.map((text) => ({ mark: "same", text }));
  return [...same(old.slice(0, head)), ...middle, ...same(old.slice(old.length - tail))];
}

/** The longest common lines stay; the others go or come. */
function between(old: string[], now: string[]): DiffLine[] {
  const gone = (lines: string[]): DiffLine[] => lines.map((text) => ({ mark: "del", text }));
  const come = (lines: string[]): DiffLine[] => lines.map((text) => ({ mark: "add", text }));
  if (old.length > LONGEST || now.length > LONGEST) return [...gone(old), ...come(now)];
  const width = now.length + 1;
  const common = new Uint16Array((old.length + 1) * width);
  const at = (row: number, column: number) => common[row * width + column] as number;
  for (let row = old.length - 1; row >= 0; row -= 1)
    for (let column = now.length - 1; column >= 0; column -= 1)
      common[row * width + column] = old[row] === now[column] ? at(row + 1, column + 1) + 1 : Math.max(at(row + 1, column), at(row, column + 1));
  const found: DiffLine[] = [];
  let [row, column] = [0, 0];
  while (row < old.length && column < now.length) {
    if (old[row] === now[column]) {
      found.push({ mark: "same", text: old[row] as string });
      row += 1;
      column += 1;
    } else if (at(row + 1, column) >= at(row, column + 1)) {
      found.push({ mark: "del", text: old[row] as string });
      row += 1;
    } else {
      found.push({ mark: "add", text: now[column] as string });
      column += 1;
    }
  }
  return [...found, ...gone(old.slice(row)), ...come(now.slice(column))];
}

export function TextDiff({ before, after, name }: { before: string; after: string; name: string }) {
  const lines = diffLines(before, after);
  if (lines.every((line) => line.mark === "same")) return <p class="note">The text is the same.</p>;
  return (
    <pre class="diff" tabIndex={0} role="region" aria-label={name}>
      <code>{lines.map((line, index) => <span key={index} class={line.mark}>{line.text || " "}</span>)}</code>
    </pre>
  );
}

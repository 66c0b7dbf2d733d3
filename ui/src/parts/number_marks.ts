// The tags that the page puts around the numbers of an answer. They carry a random word, so no text of a model or of data
// can contain one and pass off a number of its own as one with an origin.

const WORD = Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join("");
const CLOSING = /^(<\/a>|<\/span>|<br\s*\/?>)$/;
const FIGURE = new RegExp(`^<a class="num" href="#" data-figure="${WORD}-\\d+">$`);

export const UNVERIFIED_TAG = `<span class="unverified" data-mark="${WORD}" title="Could not be traced to the results.">`;

export function figureTag(index: number): string {
  return `<a class="num" href="#" data-figure="${WORD}-${index}">`;
}

/** The index of the figure that a tag belongs to; NaN if the page did not make the tag. */
export function figureIndex(mark: string): number {
  return mark.startsWith(`${WORD}-`) ? Number(mark.slice(WORD.length + 1)) : NaN;
}

/** Whether the page itself made the tag. Any other HTML in a text is shown as it is written. */
export function isOwnTag(tag: string): boolean {
  return tag === UNVERIFIED_TAG || FIGURE.test(tag) || CLOSING.test(tag);
}

// Elements for the visible part of a long list. They are made once and filled again as a person scrolls, because making
// and removing elements is what costs most in a frame.

export interface Slot {
  element: HTMLElement;
  /** The position in the list that it shows; -1 if it shows none. */
  index: number;
}

export class Slots<S extends Slot> {
  private readonly slots: S[] = [];

  constructor(
    private readonly box: HTMLElement,
    private readonly make: () => S,
  ) {}

  /** Show the positions from `first` up to `last`, not included. A position keeps its element for as long as it is shown. */
  show(first: number, last: number, fill: (slot: S, index: number) => void): void {
    while (this.slots.length < last - first) {
      const made = this.make();
      this.slots.push(made);
      this.box.append(made.element);
    }
    const size = this.slots.length;
    for (let at = 0; at < size; at += 1) {
      const slot = this.slots[at] as S;
      const index = first + (((at - first) % size) + size) % size;
      if (index >= last) {
        if (slot.index >= 0) slot.element.hidden = true;
        slot.index = -1;
        continue;
      }
      if (slot.index < 0) slot.element.hidden = false;
      fill(slot, index);
      slot.index = index;
    }
  }

  /** Every element that shows something. */
  *shown(): Iterable<S> {
    for (const slot of this.slots) if (slot.index >= 0) yield slot;
  }

  /** Put the elements into the order of the list, as the Tab key and screen readers meet them. The focus stays. */
  order(): void {
    const sorted = [...this.shown()].sort((one, other) => one.index - other.index).map((slot) => slot.element);
    if (sorted.every((element, at) => at === 0 || follows(sorted[at - 1] as HTMLElement, element))) return;
    const held = sorted.findIndex((element) => element.contains(document.activeElement));
    for (const element of sorted.slice(0, Math.max(0, held))) this.box.insertBefore(element, sorted[held] as HTMLElement);
    for (const element of sorted.slice(held + 1)) this.box.append(element);
  }
}

function follows(one: HTMLElement, other: HTMLElement): boolean {
  return (one.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_FOLLOWING) !== 0;
}

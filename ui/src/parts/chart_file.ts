// A chart as a file of its own. The drawing takes its colours from the page, so they are written into the copy.

const ATTRIBUTES = ["fill", "stroke", "stroke-width", "opacity", "font-size", "font-family", "stroke-linejoin"];
const [ROW, BAR, EDGE, GAP] = [22, 360, 12, 10];
/** The title stands above the drawing, and below it which rows it is of and what the colours mean. */
const [TITLE, LEGEND, SUBTITLE] = [30, 20, 18];

export async function saveChart(figure: HTMLElement, title: string, ending: "svg" | "png"): Promise<void> {
  const drawing = drawingOf(figure, title);
  const text = new XMLSerializer().serializeToString(drawing);
  const svg = new Blob([text], { type: "image/svg+xml" });
  offer(ending === "svg" ? svg : await rasterise(svg, drawing), `${title.replace(/[^\p{L}\p{N}]+/gu, "-") || "chart"}.${ending}`);
}

/** The drawing of the page with its title and its legend, in one piece. */
function drawingOf(figure: HTMLElement, title: string): SVGSVGElement {
  const plot = figure.querySelector<SVGSVGElement>("svg.plot");
  const heading = figure.querySelector<HTMLElement>("h3");
  const subtitle = figure.querySelector<HTMLElement>(".subtitle");
  const legend = figure.querySelector<HTMLElement>(".legend");
  const inner = plot ? (plot.cloneNode(true) as SVGSVGElement) : barsOf(figure);
  if (plot) writeStyles(plot, inner);
  const box = inner.viewBox.baseVal;
  const above = TITLE + (subtitle ? SUBTITLE : 0);
  const top = above + (legend ? LEGEND : 0);
  const widest = Math.max(0, ...[heading, subtitle].map((line) => (line ? widthOf(line) + 2 * EDGE : 0)));
  const [width, height] = [Math.max(box.width, widest), box.height + top];
  const whole = make("svg", { viewBox: `0 0 ${width} ${height}`, width, height }) as SVGSVGElement;
  whole.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const named = make("title", {});
  named.textContent = title;
  whole.append(named, make("rect", { x: 0, y: 0, width, height, fill: getComputedStyle(document.body).backgroundColor }));
  if (heading) whole.append(textAt(heading, EDGE, 20, "start"));
  if (subtitle) whole.append(textAt(subtitle, EDGE, TITLE + 8, "start"));
  if (legend) whole.append(...legendOf(legend, above + 10));
  for (const [name, value] of Object.entries({ x: 0, y: top, width: box.width, height: box.height })) inner.setAttribute(name, String(value));
  whole.append(inner);
  return whole;
}

function legendOf(legend: HTMLElement, y: number): SVGElement[] {
  const found: SVGElement[] = [];
  let x = EDGE;
  for (const entry of legend.children as Iterable<HTMLElement> & HTMLCollection) {
    const mark = entry.querySelector("i");
    if (mark) found.push(make("rect", { x, y: y - 8, width: 10, height: 8, fill: getComputedStyle(mark).backgroundColor }));
    found.push(textAt(entry as HTMLElement, x + (mark ? 14 : 0), y, "start"));
    x += widthOf(entry as HTMLElement) + (mark ? 14 : 0) + 16;
  }
  return found;
}

/** Bars are text and drawings side by side on the page; here they become one drawing, with labels as wide as they are. */
function barsOf(figure: HTMLElement): SVGSVGElement {
  const cells = [...(figure.querySelector(".bars")?.children ?? [])] as HTMLElement[];
  const labels = cells.filter((cell) => cell.matches(".clip-2"));
  const left = EDGE + Math.ceil(Math.max(0, ...labels.map(widthOf))) + GAP;
  const right = GAP + Math.ceil(Math.max(0, ...cells.filter((cell) => cell.matches(".n")).map(widthOf))) + EDGE;
  const whole = make("svg", {}) as SVGSVGElement;
  let y = 4;
  for (const cell of cells) {
    if (cell.matches(".group")) {
      y += 4;
      whole.append(textAt(cell, EDGE, y + 15, "start"));
    } else if (cell.matches(".clip-2")) whole.append(textAt(cell, EDGE, y + 15, "start"));
    else if (cell.matches(".n")) whole.append(textAt(cell, left + BAR + right - EDGE, y + 15, "end"));
    else {
      for (const bar of cell.querySelectorAll("rect")) {
        const style = getComputedStyle(bar);
        const [x, width] = [Number(bar.getAttribute("x")), Number(bar.getAttribute("width"))];
        whole.append(make("rect", { x: left + (x / 1000) * BAR, y: y + 5, width: (width / 1000) * BAR, height: 12, fill: style.fill, opacity: style.opacity }));
      }
      continue;
    }
    if (!cell.matches(".clip-2")) y += ROW;
  }
  whole.setAttribute("viewBox", `0 0 ${left + BAR + right} ${y + 8}`);
  return whole;
}

/** How wide the text of an element is in its own face. */
function widthOf(element: HTMLElement): number {
  const style = getComputedStyle(element);
  const context = document.createElement("canvas").getContext("2d");
  if (!context) return (element.textContent ?? "").length * 8;
  context.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  return context.measureText(element.textContent ?? "").width;
}

function textAt(from: HTMLElement, x: number, y: number, anchor: string): SVGElement {
  const style = getComputedStyle(from);
  const text = make("text", { x, y, "text-anchor": anchor, fill: style.color, "font-family": style.fontFamily, "font-size": style.fontSize, "font-weight": style.fontWeight });
  text.textContent = from.textContent;
  return text;
}

function make(name: string, attributes: Record<string, string | number>): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}

function writeStyles(from: Element, to: Element): void {
  const style = getComputedStyle(from);
  for (const name of ATTRIBUTES) to.setAttribute(name, style.getPropertyValue(name));
  for (let index = 0; index < from.children.length; index += 1)
    writeStyles(from.children[index] as Element, to.children[index] as Element);
}

async function rasterise(svg: Blob, drawing: SVGSVGElement): Promise<Blob> {
  const image = new Image();
  const url = URL.createObjectURL(svg);
  try {
    await new Promise((resolve, reject) => {
      image.onload = resolve;
      image.onerror = () => reject(new Error("The browser cannot draw the chart."));
      image.src = url;
    });
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [drawing.viewBox.baseVal.width * 2, drawing.viewBox.baseVal.height * 2];
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) => canvas.toBlob((made) => (made ? resolve(made) : reject(new Error("No image."))), "image/png"));
  } finally {
    URL.revokeObjectURL(url);
  }
}

function offer(file: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

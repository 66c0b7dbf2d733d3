// A chart as a file of its own. The drawing takes its colours from the page, so they are written into the copy.

const ATTRIBUTES = ["fill", "stroke", "stroke-width", "opacity", "font-size", "font-family", "stroke-linejoin"];
const [LABEL, ROW, BAR, NUMBER] = [190, 22, 330, 80];

export async function saveChart(figure: HTMLElement, title: string, ending: "svg" | "png"): Promise<void> {
  const drawing = drawingOf(figure, title);
  const text = new XMLSerializer().serializeToString(drawing);
  const svg = new Blob([text], { type: "image/svg+xml" });
  offer(ending === "svg" ? svg : await rasterise(svg, drawing), `${title.replace(/[^\p{L}\p{N}]+/gu, "-") || "chart"}.${ending}`);
}

function drawingOf(figure: HTMLElement, title: string): SVGSVGElement {
  const plot = figure.querySelector<SVGSVGElement>("svg.plot");
  const page = getComputedStyle(document.body);
  const copy = plot ? (plot.cloneNode(true) as SVGSVGElement) : barsOf(figure);
  if (plot) writeStyles(plot, copy);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const box = copy.viewBox.baseVal;
  copy.setAttribute("width", String(box.width));
  copy.setAttribute("height", String(box.height));
  const ground = make("rect", { x: box.x, y: box.y, width: box.width, height: box.height, fill: page.backgroundColor });
  copy.insertBefore(ground, copy.firstChild);
  const named = make("title", {});
  named.textContent = title;
  copy.insertBefore(named, copy.firstChild);
  return copy;
}

/** Bars are text and drawings side by side on the page; here they become one drawing. */
function barsOf(figure: HTMLElement): SVGSVGElement {
  const cells = [...(figure.querySelector(".bars")?.children ?? [])];
  const rows = cells.length / 3;
  const whole = make("svg", { viewBox: `0 0 ${LABEL + BAR + NUMBER} ${rows * ROW + 10}` }) as SVGSVGElement;
  for (let row = 0; row < rows; row += 1) {
    const [label, drawing, number] = cells.slice(row * 3, row * 3 + 3) as [HTMLElement, SVGSVGElement, HTMLElement];
    const y = row * ROW + 5;
    const bar = drawing.querySelector("rect") as SVGRectElement;
    const style = getComputedStyle(bar);
    const [x, width] = [Number(bar.getAttribute("x")), Number(bar.getAttribute("width"))];
    whole.append(textAt(label, 4, y + 14, "start"), textAt(number, LABEL + BAR + NUMBER - 4, y + 14, "end"));
    whole.append(make("rect", { x: LABEL + (x / 1000) * BAR, y: y + 5, width: (width / 1000) * BAR, height: 11, fill: style.fill, opacity: style.opacity }));
  }
  return whole;
}

function textAt(from: HTMLElement, x: number, y: number, anchor: string): SVGElement {
  const style = getComputedStyle(from);
  const text = make("text", { x, y, "text-anchor": anchor, fill: style.color, "font-family": style.fontFamily, "font-size": style.fontSize });
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

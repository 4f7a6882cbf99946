/** Draws the flame graph: callers above, what they call below. */
import { colour } from "../../theme";
import { INCOMPLETE, visible, type Node } from "./tree";

export const ROW = 22;

export interface Scene {
  readonly root: Node;
  readonly focus: Node;
  readonly chosen: Node | null;
  readonly width: number;
  readonly found: ((node: Node) => boolean) | null;
}

export interface Box {
  readonly node: Node;
  readonly left: number;
  readonly right: number;
}

/** Where nodes lie. Those above the focus fill the width. */
export function boxes({ root, focus, width }: Scene): Box[] {
  const scale = width / Math.max(1e-9, focus.value);
  return visible(root, focus, 0.7 / scale).map((node) => {
    const isAbove = node.depth < focus.depth;
    const left = isAbove ? 0 : (node.start - focus.start) * scale;
    return { node, left, right: isAbove ? width : left + node.value * scale };
  });
}

export function boxAt(all: readonly Box[], x: number, y: number): Node | null {
  const depth = Math.floor(y / ROW);
  return all.find(({ node, left, right }) => node.depth === depth && x >= left && x < right)?.node ?? null;
}

export function draw(context: CanvasRenderingContext2D, scene: Scene, all: readonly Box[], height: number): void {
  const colours = palette();
  context.fillStyle = colours.surface;
  context.fillRect(0, 0, scene.width, height);
  context.font = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
  context.textBaseline = "middle";
  for (const box of all) drawBox(context, scene, box, colours);
}

type Colours = ReturnType<typeof palette>;

function palette() {
  const names = ["python", "native", "kernel", "jit"] as const;
  return {
    kinds: Object.fromEntries(names.map((kind) => [kind, colour(`frame-${kind}`)])) as Readonly<Record<string, string>>,
    surface: colour("surface"),
    low: colour("surface-low"),
    text: colour("text"),
    frameText: colour("frame-text"),
    found: colour("found"),
    line: colour("line-strong"),
  };
}

function drawBox(context: CanvasRenderingContext2D, scene: Scene, { node, left, right }: Box, colours: Colours): void {
  const top = node.depth * ROW;
  const width = Math.max(0.6, right - left - 1);
  const isFound = scene.found?.(node) ?? false;
  const isPlain = node.kind === "root" || node.kind === INCOMPLETE;
  context.globalAlpha = node.depth < scene.focus.depth ? 0.55 : scene.found && !isFound ? 0.4 : 1;
  context.fillStyle = isFound ? colours.found : (colours.kinds[node.kind] ?? colours.low);
  context.fillRect(left, top, width, ROW - 1);
  if (node.kind === INCOMPLETE) stripes(context, left, top, width, colours.line);
  context.globalAlpha = 1;
  if (node === scene.chosen) outline(context, left, top, width, colours.text);
  if (width < 34) return;
  context.fillStyle = isFound ? colours.surface : isPlain || context.globalAlpha < 1 ? colours.text : colours.frameText;
  if (scene.found && !isFound) context.fillStyle = colours.text;
  context.fillText(fitted(node.name, width - 10), left + 5, top + ROW / 2);
}

/** Cut to the width, at 6.6 pixels a letter: measuring each name takes longer than drawing it. */
function fitted(name: string, width: number): string {
  const most = Math.floor(width / 6.6);
  return name.length <= most ? name : `${name.slice(0, Math.max(1, most - 1))}…`;
}

function stripes(context: CanvasRenderingContext2D, left: number, top: number, width: number, stroke: string): void {
  context.save();
  context.beginPath();
  context.rect(left, top, width, ROW - 1);
  context.clip();
  context.strokeStyle = stroke;
  context.lineWidth = 1.5;
  context.beginPath();
  for (let x = left - ROW; x < left + width; x += 7) {
    context.moveTo(x, top + ROW);
    context.lineTo(x + ROW, top);
  }
  context.stroke();
  context.restore();
}

function outline(context: CanvasRenderingContext2D, left: number, top: number, width: number, stroke: string): void {
  context.strokeStyle = stroke;
  context.lineWidth = 2;
  context.strokeRect(left + 1, top + 1, Math.max(2, width - 2), ROW - 3);
}

/** The canvas of the flame graph: click zooms, keys walk, the line below says what is chosen. */
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { change } from "../../route";
import { useTheme } from "../../theme";
import { count, duration, share } from "../../units";
import { boxAt, boxes, draw, ROW, type Scene } from "./draw";
import { deepest, nodeAt, pathOf, type Node } from "./tree";

export function Graph(props: { root: Node; path: string | undefined; search: string; unit: string }) {
  const { root, unit } = props;
  const focus = useMemo(() => nodeAt(root, props.path), [root, props.path]);
  const [pointed, setPointed] = useState<Node | null>(null);
  const [width, setWidth] = useState(0);
  const canvas = useRef<HTMLCanvasElement>(null);
  const holder = useRef<HTMLDivElement>(null);
  const theme = useTheme();
  const found = useMemo(() => matcher(props.search), [props.search]);
  const scene: Scene = { root, focus, chosen: pointed, width, found };
  const all = useMemo(() => boxes(scene), [root, focus, width]);
  const height = (deepest(focus) + 1) * ROW;

  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => entry && setWidth(Math.floor(entry.contentRect.width)));
    if (holder.current) observer.observe(holder.current);
    return () => observer.disconnect();
  }, []);
  useLayoutEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d", { alpha: false });
    if (!element || !context || width === 0) return;
    const ratio = devicePixelRatio || 1;
    element.width = Math.round(width * ratio);
    element.height = Math.round(height * ratio);
    element.style.width = `${width}px`;
    element.style.height = `${height}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw(context, scene, all, height);
  }, [all, pointed, found, theme, height]);

  const zoom = (node: Node | null) => node && change({ path: pathOf(node) });
  const onKey = (event: KeyboardEvent) => {
    const next = stepped(event.key, pointed ?? focus);
    if (event.key === "Enter") zoom(pointed);
    else if (event.key === "Escape") zoom(root);
    else if (next) setPointed(next);
    else return;
    event.preventDefault();
  };
  const words = wordsOf(pointed ?? focus, root, unit);
  return (
    <div class="flame">
      <p class="flame-words" aria-live="polite" id="flame-words">
        <strong>{words.name}</strong> {words.value} {words.file && <span class="muted">{words.file}</span>}
      </p>
      <div class="canvas-frame" ref={holder} style={{ height: `${height}px` }}>
        <canvas
          ref={canvas}
          class="flame-canvas"
          tabIndex={0}
          role="application"
          aria-label="Flame graph. Arrow keys walk through callers and callees, Enter zooms, Escape shows all."
          aria-describedby="flame-words"
          onPointerMove={(event) => setPointed(boxAt(all, event.offsetX, event.offsetY))}
          onPointerLeave={() => setPointed(null)}
          onClick={(event) => zoom(boxAt(all, event.offsetX, event.offsetY))}
          onKeyDown={onKey}
        />
      </div>
    </div>
  );
}

export function matcher(search: string): ((node: Node) => boolean) | null {
  const text = search.trim().toLowerCase();
  return text
    ? (node) => node.name.toLowerCase().includes(text) || (node.file ?? "").toLowerCase().includes(text)
    : null;
}

function stepped(key: string, at: Node): Node | null {
  const siblings = at.parent?.children ?? [at];
  switch (key) {
    case "ArrowUp":
      return at.parent;
    case "ArrowDown":
      return at.children.reduce<Node | null>((most, child) => (most && most.value >= child.value ? most : child), null);
    case "ArrowLeft":
      return siblings[siblings.indexOf(at) - 1] ?? at;
    case "ArrowRight":
      return siblings[siblings.indexOf(at) + 1] ?? at;
    default:
      return null;
  }
}

function wordsOf(node: Node, root: Node, unit: string): { name: string; value: string; file: string } {
  const value =
    unit === "samples" ? `${count(node.value)} samples` : `${duration(node.value)} in ${count(node.count)} ${unit}`;
  return {
    name: node.parent ? node.name : "All stacks",
    value: `${value}, ${share(node.value / Math.max(1e-9, root.value))}`,
    file: node.file ? `${node.file}${node.line ? `:${node.line}` : ""}` : "",
  };
}

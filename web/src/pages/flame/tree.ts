/** Stacks become a tree: the outermost callers at its root, time added up on the way. */
import type { RankedStack, StackFrame } from "../../answers";

export interface Node {
  readonly name: string;
  readonly kind: string;
  readonly file: string | null;
  readonly line: number | null;
  readonly depth: number;
  readonly parent: Node | null;
  readonly children: Node[];
  value: number;
  count: number;
  /** Where it begins, in the unit of values, from the left. */
  start: number;
}

/** Stands for callers that the walk did not reach. */
export const INCOMPLETE = "incomplete";

const WHOLE = new Set(["complete", "frame_pointers", null]);

export function tree(stacks: readonly RankedStack[], weight: (stack: RankedStack) => number): Node {
  const root = node("all", "root", null, null, null);
  for (const stack of stacks) add(root, stack, weight(stack));
  place(root, 0);
  return root;
}

function add(root: Node, stack: RankedStack, value: number): void {
  let at = grown(root, value, stack.count);
  if (!WHOLE.has(stack.end)) at = grown(child(at, "[callers not known]", INCOMPLETE, null, null), value, stack.count);
  for (const frame of [...stack.frames].reverse()) {
    at = grown(child(at, title(frame), frame.kind, frame.file ?? frame.module, frame.line), value, stack.count);
  }
}

function title(frame: StackFrame): string {
  const module = frame.module ? frame.module.slice(frame.module.lastIndexOf("/") + 1) : "unknown";
  return frame.function || `[${module}]`;
}

function child(parent: Node, name: string, kind: string, file: string | null, line: number | null): Node {
  const known = parent.children.find((node) => node.name === name && node.kind === kind && node.file === file);
  if (known) return known;
  const added = node(name, kind, file, line, parent);
  parent.children.push(added);
  return added;
}

function grown(at: Node, value: number, count: number): Node {
  at.value += value;
  at.count += count;
  return at;
}

function node(name: string, kind: string, file: string | null, line: number | null, parent: Node | null): Node {
  return {
    name,
    kind,
    file,
    line,
    depth: parent ? parent.depth + 1 : 0,
    parent,
    children: [],
    value: 0,
    count: 0,
    start: 0,
  };
}

/** Children in the order of names, so that the picture stays the same while a trace grows. */
function place(at: Node, start: number): void {
  at.start = start;
  at.children.sort((a, b) => (a.name < b.name ? -1 : 1));
  for (const child of at.children) {
    place(child, start);
    start += child.value;
  }
}

export function deepest(at: Node): number {
  return at.children.reduce((most, child) => Math.max(most, deepest(child)), at.depth);
}

/** Every node that can be seen when `focus` fills the width: those above it, and those below it wide enough. */
export function visible(root: Node, focus: Node, least: number): Node[] {
  const above: Node[] = [];
  for (let at = focus.parent; at; at = at.parent) above.unshift(at);
  const below: Node[] = [];
  const walk = (at: Node) => {
    if (at.value < least) return;
    below.push(at);
    at.children.forEach(walk);
  };
  walk(focus);
  return focus === root ? below : [...above, ...below];
}

/** Value of all nodes that match and lie in no other that matches. */
export function matching(at: Node, found: (node: Node) => boolean): number {
  if (found(at)) return at.value;
  return at.children.reduce((sum, child) => sum + matching(child, found), 0);
}

/** How to say where a node is in the tree, and back: the names on the way to it. */
export function pathOf(at: Node): string {
  return at.parent ? [pathOf(at.parent), at.parent.children.indexOf(at)].filter((step) => step !== "").join(".") : "";
}

export function nodeAt(root: Node, path: string | undefined): Node {
  let at = root;
  for (const step of (path ?? "").split(".").filter(Boolean)) at = at.children[Number(step)] ?? at;
  return at;
}

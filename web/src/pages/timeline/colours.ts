/** What the colours of the timeline mean. Calls are plain, waits are hatched. */
import { colour } from "../../theme";

interface Meaning {
  readonly text: string;
  readonly colour: string;
}

const CLASSES: Readonly<Record<string, Meaning>> = {
  launch: { text: "launch", colour: "part-launch" },
  graph: { text: "graph", colour: "part-launch" },
  copy: { text: "copy", colour: "part-copy" },
  memset: { text: "memset", colour: "part-copy" },
  alloc: { text: "allocate", colour: "part-memory" },
  free: { text: "free", colour: "part-memory" },
  sync: { text: "wait for the GPU", colour: "part-gpu" },
  event: { text: "event", colour: "part-other-call" },
  module: { text: "load code", colour: "part-other-call" },
  context: { text: "context", colour: "part-other-call" },
  collective: { text: "collective", colour: "part-network" },
  communicator: { text: "communicator", colour: "part-other-call" },
  fabric: { text: "fabric", colour: "part-network" },
};

const REASONS: Readonly<Record<string, Meaning>> = {
  futex: { text: "lock", colour: "part-lock" },
  io: { text: "disk", colour: "part-disk" },
  fault: { text: "page fault", colour: "part-faults" },
  sleep: { text: "sleep", colour: "part-handover" },
  poll: { text: "poll", colour: "part-network" },
  stream: { text: "pipe or socket", colour: "part-input" },
  ioctl: { text: "driver", colour: "part-copy" },
  other: { text: "other", colour: "part-other" },
};

const OTHER: Meaning = { text: "other", colour: "part-other" };
export const RUN_QUEUE: Meaning = { text: "waiting for a CPU", colour: "part-cpu" };

export function classMeaning(name: string): Meaning {
  return CLASSES[name] ?? OTHER;
}

export function reasonMeaning(name: string): Meaning {
  return REASONS[name] ?? OTHER;
}

export interface Palette {
  readonly classes: readonly string[];
  readonly reasons: readonly string[];
  readonly hatches: readonly CanvasPattern[];
  readonly runQueue: string;
  readonly text: string;
  readonly soft: string;
  readonly line: string;
  readonly surface: string;
  readonly low: string;
  readonly accent: string;
}

export function palette(classes: readonly string[], reasons: readonly string[]): Palette {
  const plain = reasons.map((name) => colour(reasonMeaning(name).colour));
  const surface = colour("surface");
  return {
    classes: classes.map((name) => colour(classMeaning(name).colour)),
    reasons: plain,
    hatches: plain.map((each) => hatch(each)),
    runQueue: colour(RUN_QUEUE.colour),
    text: colour("text"),
    soft: colour("text-soft"),
    line: colour("line"),
    surface,
    low: colour("surface-low"),
    accent: colour("accent"),
  };
}

function hatch(stroke: string): CanvasPattern {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const context = tile.getContext("2d")!;
  context.globalAlpha = 0.28;
  context.fillStyle = stroke;
  context.fillRect(0, 0, 8, 8);
  context.globalAlpha = 1;
  context.strokeStyle = stroke;
  context.lineWidth = 2.4;
  for (const offset of [-8, 0, 8]) {
    context.moveTo(offset - 1, 9);
    context.lineTo(offset + 9, -1);
  }
  context.stroke();
  return context.createPattern(tile, "repeat")!;
}

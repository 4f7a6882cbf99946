/** What a dispatch thread's time goes to: the order in which parts are stacked, and their colours. */
interface TimePart {
  readonly name: string;
  readonly colour: string;
}

/** Useful work first, then the GPU's turn, then what it waits for. */
const PARTS: readonly TimePart[] = [
  { name: "application code", colour: "part-code" },
  { name: "launching", colour: "part-launch" },
  { name: "copying", colour: "part-copy" },
  { name: "GPU memory calls", colour: "part-memory" },
  { name: "other GPU calls", colour: "part-other-call" },
  { name: "waiting for the GPU", colour: "part-gpu" },
  { name: "another thread's turn", colour: "part-handover" },
  { name: "asleep on purpose", colour: "part-asleep" },
  { name: "waiting for a CPU", colour: "part-cpu" },
  { name: "stopped by a CPU quota", colour: "part-throttled" },
  { name: "waiting for a lock", colour: "part-lock" },
  { name: "waiting for a disk", colour: "part-disk" },
  { name: "waiting for input", colour: "part-input" },
  { name: "waiting for the network", colour: "part-network" },
  { name: "waiting for memory", colour: "part-faults" },
  { name: "waiting for something else", colour: "part-other" },
];

export function partColour(name: string): string {
  return PARTS.find((part) => part.name === name)?.colour ?? "part-other";
}

/** Where it is stacked. A part that this page does not know yet comes last. */
export function partOrder(name: string): number {
  const index = PARTS.findIndex((part) => part.name === name);
  return index < 0 ? PARTS.length : index;
}

/** Gets finer slices as one zooms in. What is outdated is aborted; what is there is drawn until better comes. */
import { ask, Refusal, type Parameters } from "../../ask";
import { decode, type Slice } from "./slice";
import { around, serves, type View } from "./view";

const QUIET_MS = 60;
const MOST_WIDTH = 4000;

export class SliceSource {
  private fine: Slice | null = null;
  private control: AbortController | null = null;
  private asked: View | null = null;
  private timer = 0;

  constructor(
    readonly whole: Slice,
    readonly origin: bigint,
    private readonly parameters: Parameters,
    private readonly onChange: (isLoading: boolean, refusal: Refusal | null) => void,
    before: SliceSource | null,
  ) {
    if (before?.origin === origin) this.fine = before.fine;
  }

  /** The finest slice that covers the view. */
  slice(view: View): Slice {
    const { fine } = this;
    return fine && fine.from <= view.from && fine.to >= view.to ? fine : this.whole;
  }

  /** Says what is visible now. */
  want(view: View, width: number): void {
    const all = { from: this.whole.from, to: this.whole.to };
    if (serves(this.slice(view), view, all)) return this.stop();
    if (this.asked && serves(this.asked, view, all)) return;
    this.stop();
    this.asked = around(view, all);
    this.onChange(true, null);
    this.timer = window.setTimeout(() => void this.load(this.asked!, width), QUIET_MS);
  }

  stop(): void {
    clearTimeout(this.timer);
    this.control?.abort();
    if (this.asked) this.onChange(false, null);
    this.control = this.asked = null;
  }

  private async load(span: View, width: number): Promise<void> {
    const control = (this.control = new AbortController());
    const [from, to] = [this.moment(Math.floor(span.from)), this.moment(Math.ceil(span.to))];
    const lanes = this.whole.lanes.map((lane) => lane.tid);
    const parameters = {
      ...this.parameters,
      since: undefined,
      from,
      to,
      lanes,
      width: Math.min(MOST_WIDTH, width * 2),
    };
    try {
      const answer = await ask("timeline", parameters, control.signal);
      if (control.signal.aborted) return;
      this.fine = decode(answer, this.origin);
      this.asked = null;
      this.onChange(false, null);
    } catch (error) {
      if (control.signal.aborted) return;
      this.asked = null;
      this.onChange(false, error instanceof Refusal ? error : new Refusal("failed", String(error), null));
    }
  }

  private moment(offset: number): string {
    return (this.origin + BigInt(offset)).toString();
  }
}

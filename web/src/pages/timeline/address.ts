/** The visible span as a part of the address: `view=FROM-TO`, in nanoseconds since 1970. */
import { length, type View } from "./view";

export function moment(offset: number, origin: bigint): string {
  return (origin + BigInt(Math.round(offset))).toString();
}

/** Empty where everything is visible. */
export function toAddress(view: View, origin: bigint, all: View): string {
  return length(view) >= length(all) ? "" : `${moment(view.from, origin)}-${moment(view.to, origin)}`;
}

export function fromAddress(text: string | undefined, origin: bigint, all: View): View {
  const [from, to] = (text ?? "")
    .split("-")
    .map((digits) => (/^\d{1,20}$/.test(digits) ? Number(BigInt(digits) - origin) : NaN));
  const isSpan = from !== undefined && to !== undefined && from < to && from < all.to && to > all.from;
  return isSpan ? { from: Math.max(from, all.from), to: Math.min(to, all.to) } : all;
}

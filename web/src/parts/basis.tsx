/** What an answer is based on: what was seen, lost and sampled. It stands below every answer. */
import type { Coverage } from "../answers";
import { pageAddress } from "../route";
import { count, counted, share } from "../units";

export function BasisNote({ coverage }: { coverage: Coverage }) {
  const lost = Object.values(coverage.lost).reduce((sum, each) => sum + each, 0);
  const { sampled, unattached } = coverage;
  return (
    <p class="basis">
      Based on {counted(coverage.events, "record")}. {lost > 0 ? `${count(lost)} were lost. ` : "Nothing was lost. "}
      {sampled.length > 0 && `${sampledText(sampled)} `}
      {unattached.length > 0 && `${counted(unattached.length, "thing")} could not be watched. `}
      <a href={pageAddress("coverage")}>What was seen</a>
    </p>
  );
}

function sampledText(sampled: Coverage["sampled"]): string {
  const least = sampled.reduce((a, b) => (a.fraction < b.fraction ? a : b));
  const functions = sampled.length === 1 ? "1 function was" : `${sampled.length} functions were`;
  return `${functions} seen part of the time (${least.op}: ${share(least.fraction)}).`;
}

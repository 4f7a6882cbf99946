import type { Query } from "../../route";
export function CoveragePage(_: { query: Query }) { return <p>later</p>; }

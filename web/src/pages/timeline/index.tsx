import type { Query } from "../../route";
export function Timeline(_: { query: Query }) { return <p>later</p>; }

import type { Query } from "../../route";
export function Time(_: { query: Query }) { return <p>later</p>; }

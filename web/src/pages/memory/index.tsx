import type { Query } from "../../route";
export function Memory(_: { query: Query }) { return <p>later</p>; }

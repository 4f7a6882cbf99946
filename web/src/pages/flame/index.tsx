import type { Query } from "../../route";
export function Flame(_: { query: Query }) { return <p>later</p>; }

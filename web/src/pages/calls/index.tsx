import type { Query } from "../../route";
export function Calls(_: { query: Query }) { return <p>later</p>; }

import type { Query } from "../../route";
export function Sql(_: { query: Query }) { return <p>later</p>; }

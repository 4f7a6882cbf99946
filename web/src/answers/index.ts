/** The answers of the server, as far as the pages read them. Names are those of the questions' fields. */
export type * from "./basis";
export type * from "./findings";
export type * from "./summary";
export type * from "./calls";
export type * from "./time";
export type * from "./stacks";
export type * from "./timeline";
export type * from "./memory";
export type * from "./coverage";

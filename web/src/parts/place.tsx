/** A place in the code, with the part of the path that one reads first. */
export function Location(props: {
  file: string | null;
  line?: number | null;
  function?: string | null;
  kind?: string;
}) {
  if (!props.file) return <span class="muted">{props.function ?? "unknown"}</span>;
  const cut = props.file.lastIndexOf("/") + 1;
  return (
    <span class="place">
      <span class="place-line" title={props.file}>
        <span class="place-folder">{props.file.slice(0, cut)}</span>
        <strong>
          {props.file.slice(cut)}
          {props.line ? `:${props.line}` : ""}
        </strong>
      </span>
      {props.function && <span class="place-function"> in {props.function}</span>}
      {props.kind === "python" && <span class="tag">Python</span>}
    </span>
  );
}

/** `loader.py:12`, for cells. */
export function shortPlace(file: string | null, line: number | null): string {
  if (!file) return "";
  return `${file.slice(file.lastIndexOf("/") + 1)}${line ? `:${line}` : ""}`;
}

/** A table that can be sorted by any column. Cells are text or small pictures, never markup from a trace. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

export interface Column<Row> {
  readonly title: string;
  readonly hint?: string;
  readonly cell: (row: Row) => ComponentChildren;
  /** What to sort by; a column without it cannot be sorted. */
  readonly key?: (row: Row) => number | string;
  readonly numeric?: boolean;
  readonly class?: string;
}

export interface TableProps<Row> {
  readonly label: string;
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  readonly rowKey: (row: Row, index: number) => string;
  /** Makes the first cell of each row a button. */
  readonly onRow?: (row: Row) => void;
  readonly isChosen?: (row: Row) => boolean;
}

export function Table<Row>({ label, columns, rows, rowKey, onRow, isChosen }: TableProps<Row>) {
  const [sort, setSort] = useState<{ column: number; down: boolean } | null>(null);
  const shown = sort ? sorted(rows, columns[sort.column], sort.down) : rows;
  const turn = (column: number) =>
    setSort((old) => (old?.column === column ? { column, down: !old.down } : { column, down: true }));
  return (
    <div class="table-frame" role="region" aria-label={label} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {columns.map((column, index) => (
              <th
                key={column.title}
                scope="col"
                class={column.numeric ? "numeric" : undefined}
                aria-sort={sort?.column === index ? (sort.down ? "descending" : "ascending") : undefined}
              >
                {column.key ? (
                  <button type="button" class="sort" title={column.hint} onClick={() => turn(index)}>
                    {column.title}
                    <span aria-hidden="true">{sort?.column === index ? (sort.down ? " ↓" : " ↑") : ""}</span>
                  </button>
                ) : (
                  <span title={column.hint}>{column.title}</span>
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((row, index) => (
            <tr key={rowKey(row, index)} class={isChosen?.(row) ? "chosen" : undefined}>
              {columns.map((column, at) => (
                <td key={column.title} class={`${column.numeric ? "numeric" : ""} ${column.class ?? ""}`}>
                  {at === 0 && onRow ? (
                    <button type="button" class="link" onClick={() => onRow(row)}>
                      {column.cell(row)}
                    </button>
                  ) : (
                    column.cell(row)
                  )}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function sorted<Row>(rows: readonly Row[], column: Column<Row> | undefined, down: boolean): readonly Row[] {
  const key = column?.key;
  if (!key) return rows;
  const sign = down ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [left, right] = [key(a), key(b)];
    return sign * (left < right ? -1 : left > right ? 1 : 0);
  });
}

/** The tables and their columns, as the trace itself describes them. */
import type { Rows } from "../../answers";
import { Answered, useAnswer } from "../../parts/asked";
import { Panel } from "../../parts/panel";

const TABLES = "SELECT * FROM schema_tables ORDER BY name";
const COLUMNS = "SELECT * FROM schema_columns";

export function Schema({ trace, onTable }: { trace: string | undefined; onTable: (table: string) => void }) {
  const tables = useAnswer("sql", { sql: TABLES, limit: 500, trace });
  const columns = useAnswer("sql", { sql: COLUMNS, limit: 5000, trace });
  return (
    <Panel title="Tables" class="schema">
      <Answered of={tables} what="the tables">
        {(rows) => (
          <ul>
            {objects(rows).map((table) => (
              <li key={table.name}>
                <Table table={table} columns={columns.answer ? objects(columns.answer) : []} onTable={onTable} />
              </li>
            ))}
          </ul>
        )}
      </Answered>
    </Panel>
  );
}

type Described = Readonly<Record<string, string>>;

function Table(props: { table: Described; columns: Described[]; onTable: (table: string) => void }) {
  const { table, columns, onTable } = props;
  const name = table.name ?? "";
  const own = columns.filter((column) => column.table_name === name);
  return (
    <details>
      <summary title={table.description}>{name}</summary>
      <p class="muted">{table.description}</p>
      <dl>
        {own.map((column) => (
          <div key={column.column_name}>
            <dt>
              {column.column_name} <span class="muted">{column.unit || column.type}</span>
            </dt>
            <dd class="muted">{column.description}</dd>
          </div>
        ))}
      </dl>
      {/^\w+$/.test(name) && (
        <button type="button" class="small" onClick={() => onTable(name)}>
          Show 50 rows
        </button>
      )}
    </details>
  );
}

function objects(rows: Rows): Described[] {
  return rows.rows.map((row) =>
    Object.fromEntries(rows.columns.map((name, index) => [name, String(row[index] ?? "")])),
  );
}

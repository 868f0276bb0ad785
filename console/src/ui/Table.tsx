// A table of rows that are all drawn, in a box that scrolls sideways when it is too narrow.

import { Fragment, type ReactNode } from "react";

export interface TableColumn<T> {
  /** Shown above it; null: for the eye it has none. */
  title: string | null;
  right?: boolean;
  /** A class of its cells. */
  style?: string;
  cell: (row: T) => ReactNode;
}

export function Table<T>({ label, rows, columns, rowKey, below }: { label: string; rows: T[]; columns: TableColumn<T>[]; rowKey: (row: T) => string; below?: (row: T) => ReactNode }) {
  if (rows.length === 0) return null;
  const styleOf = (column: TableColumn<T>): string => `${column.right ? "right" : ""} ${column.style ?? ""}`.trim();
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((column, at) => (
              <th key={column.title ?? at} className={column.right ? "right" : undefined}>
                {column.title ?? <span className="visually-hidden">Actions</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => {
            const more = below?.(row);
            return (
              <Fragment key={rowKey(row)}>
                <tr className={more ? "chosen" : undefined}>
                  {columns.map((column, at) => (
                    <td key={column.title ?? at} className={styleOf(column) || undefined}>
                      {column.cell(row)}
                    </td>
                  ))}
                </tr>
                {more && (
                  <tr className="opened">
                    <td colSpan={columns.length}>{more}</td>
                  </tr>
                )}
              </Fragment>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

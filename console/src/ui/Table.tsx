// A table of rows that are all drawn, whose cells go below each other on a telephone.

import { Fragment, type ReactNode } from "react";

export interface TableColumn<T> {
  /** Shown above it; null: for the eye it has none. */
  title: string | null;
  right?: boolean;
  /** A class of its cells. */
  style?: string;
  /** What it is sorted by when its title is chosen; with - before it the largest comes first. */
  sort?: string;
  cell: (row: T) => ReactNode;
}

const column = (sort: string): string => sort.replace(/^-/, "");
const turned = (sort: string): string => (sort.startsWith("-") ? column(sort) : `-${sort}`);

export function Table<T>({ label, rows, columns, rowKey, below, sorted = "", onSort }: { label: string; rows: T[]; columns: TableColumn<T>[]; rowKey: (row: T) => string; below?: (row: T) => ReactNode; sorted?: string; onSort?: (sort: string) => void }) {
  if (rows.length === 0) return null;
  const styleOf = (column: TableColumn<T>): string => `${column.right ? "right" : ""} ${column.style ?? ""}`.trim();
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label={label}>
      <table role="table" className={onSort === undefined ? "stacks" : "stacks sorts"}>
        <thead role="rowgroup">
          <tr role="row">
            {columns.map(({ title, right, sort }, at) => {
              const here = sort !== undefined && column(sort) === column(sorted);
              return (
                <th key={title ?? at} role="columnheader" className={right ? "right" : undefined} aria-sort={here ? (sorted.startsWith("-") ? "descending" : "ascending") : undefined}>
                  {sort === undefined || onSort === undefined ? (
                    (title ?? <span className="visually-hidden">Actions</span>)
                  ) : (
                    <button type="button" className="sort" onClick={() => onSort(here ? turned(sorted) : sort)}>
                      {title}
                      <span aria-hidden="true">{here ? (sorted.startsWith("-") ? " ↓" : " ↑") : ""}</span>
                    </button>
                  )}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {rows.map((row) => {
            const more = below?.(row);
            return (
              <Fragment key={rowKey(row)}>
                <tr role="row" className={more ? "chosen" : undefined}>
                  {columns.map((column, at) => (
                    <td key={column.title ?? at} role="cell" data-title={column.title ?? undefined} className={styleOf(column) || undefined}>
                      {column.cell(row)}
                    </td>
                  ))}
                </tr>
                {more && (
                  <tr role="row" className="opened">
                    <td role="cell" colSpan={columns.length}>{more}</td>
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

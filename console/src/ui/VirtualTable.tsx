// A table of any number of rows, of which those in view are drawn.

import { useVirtualizer } from "@tanstack/react-virtual";
import { type CSSProperties, type ReactNode, useRef } from "react";

export interface Column<T> {
  key: string;
  title: string;
  /** As in grid-template-columns. */
  width: string;
  right?: boolean;
  cell: (row: T) => ReactNode;
}

const ROW_PX = 34;

export function VirtualTable<T>({ rows, columns, rowKey, label, empty }: { rows: T[]; columns: Column<T>[]; rowKey: (row: T) => string; label: string; empty: ReactNode }) {
  const box = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => box.current, estimateSize: () => ROW_PX, overscan: 8 });
  const layout = { gridTemplateColumns: columns.map((column) => column.width).join(" ") };
  return (
    <div className="vtable" ref={box} style={{ "--rows": Math.max(1, rows.length) } as CSSProperties} role="table" aria-label={label} aria-rowcount={rows.length + 1} tabIndex={0}>
      <div role="rowgroup" className="vtable-head">
        <div role="row" aria-rowindex={1} style={layout}>
          {columns.map((column) => (
            <div key={column.key} role="columnheader" className={column.right ? "right" : ""}>
              {column.title}
            </div>
          ))}
        </div>
      </div>
      <div role="rowgroup" className="vtable-body" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const row = rows[item.index] as T;
          return (
            <div key={rowKey(row)} role="row" aria-rowindex={item.index + 2} style={{ ...layout, transform: `translateY(${item.start}px)` }}>
              {columns.map((column) => (
                <div key={column.key} role="cell" className={column.right ? "right" : ""}>
                  {column.cell(row)}
                </div>
              ))}
            </div>
          );
        })}
        {rows.length === 0 && (
          <div role="row">
            <div role="cell" className="empty">
              {empty}
            </div>
          </div>
        )}
      </div>
    </div>
  );
}

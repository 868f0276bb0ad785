// A list of topics or subscriptions: a filter, columns to sort by, and one page of it.

import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { type ListPage, type ListSearch, PAGE_ROWS } from "../api/lists";
import { count, duration, num } from "../lib/format";
import { Loading, Problem } from "./parts";
import { Spark } from "./Spark";
import { Table, type TableColumn } from "./Table";

interface Props<T> {
  label: string;
  filter: string;
  search: ListSearch;
  found: UseQueryResult<ListPage<T>>;
  columns: TableColumn<T>[];
  empty: ReactNode;
  onSearch: (next: ListSearch) => void;
}

export function ResourceList<T extends { name: string }>({ label, filter, search, found, columns, empty, onSearch }: Props<T>) {
  const begin = num(search.begin);
  const page = found.data;
  const moved = (to: number): ListSearch => {
    const { begin: _, ...rest } = search;
    return to > 0 ? { ...rest, begin: String(to) } : rest;
  };
  return (
    <>
      <input
        className="list-filter"
        type="search"
        aria-label={filter}
        placeholder={filter}
        defaultValue={search.q ?? ""}
        onChange={(event) => onSearch({ ...(event.target.value === "" ? {} : { q: event.target.value }), ...(search.sort === undefined ? {} : { sort: search.sort }) })}
      />
      {found.isError && <Problem error={found.error} />}
      {found.isPending && <Loading />}
      {page !== undefined && (
        <section className="card flush" aria-label={label}>
          {page.rows.length === 0 ? (
            <p className="empty">{page.total === 0 ? empty : "None matches this filter."}</p>
          ) : (
            <Table label={label} rows={page.rows} columns={columns} rowKey={(one) => one.name} sorted={search.sort ?? "name"} onSort={(sort) => onSearch({ ...moved(0), sort })} />
          )}
          {(page.matched > PAGE_ROWS || page.partial) && (
            <footer className="list-foot">
              <span className="muted">
                {page.matched > PAGE_ROWS && `${count(begin + 1)}–${count(Math.min(begin + PAGE_ROWS, page.matched))} of ${count(page.matched)}`}
                {page.partial && " History names some twenty busy ones of a project; where it does not know a number, the row is sorted last."}
              </span>
              {page.matched > PAGE_ROWS && (
                <span>
                  <button type="button" disabled={begin === 0} onClick={() => onSearch(moved(begin - PAGE_ROWS))}>
                    Previous
                  </button>{" "}
                  <button type="button" disabled={begin + PAGE_ROWS >= page.matched} onClick={() => onSearch(moved(begin + PAGE_ROWS))}>
                    Next
                  </button>
                </span>
              )}
            </footer>
          )}
        </section>
      )}
      {(page?.unknown ?? []).map((one) => (
        <p key={one} className="note warn">
          Unknown: {one}
        </p>
      ))}
    </>
  );
}

/** The column of the last hour. */
export const sparkColumn = <T extends { name: string; spark: (number | null)[] }>(of: string): TableColumn<T> => ({
  title: "Last hour",
  cell: (one) => <Spark values={one.spark} label={`${of} over the last hour`} />,
});

export const ageOf = (seconds: number | null): string => (seconds === null ? "" : seconds === 0 ? "–" : duration(seconds));

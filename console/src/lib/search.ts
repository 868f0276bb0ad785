// The search of an address, as plain text: read as JSON, an identifier such as 2243163365e24 would be a number.

/** The values by their names; several of one name are a list. */
export function readSearch(search: string): Record<string, string | string[]> {
  const given = new URLSearchParams(search);
  const values = [...new Set(given.keys())].map((name) => [name, given.getAll(name)] as const);
  return Object.fromEntries(values.map(([name, all]) => [name, all.length === 1 ? (all[0] ?? "") : all]));
}

/** The search that `readSearch` reads, with its question mark; empty if nothing is given. */
export function writeSearch(values: Record<string, unknown>): string {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const one of Array.isArray(value) ? (value as unknown[]) : [value]) if (one !== undefined) given.append(name, String(one));
  }
  return given.size === 0 ? "" : `?${given.toString()}`;
}

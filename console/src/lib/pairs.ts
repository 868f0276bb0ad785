// Names and values of a form, of which lines without a name do not count.

export const given = (pairs: [string, string][]): [string, string][] => pairs.filter(([name]) => name !== "");

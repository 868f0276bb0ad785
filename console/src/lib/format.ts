// Numbers, times and names as the console writes them.

export const num = (value: string | number | undefined | null): number => Number(value ?? 0);

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1, notation: "compact" });

export const count = (value: string | number | undefined | null): string => whole.format(num(value));

export function compact(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 10_000 ? new Intl.NumberFormat("en", { maximumFractionDigits: value < 10 ? 1 : 0 }).format(value) : short.format(value);
}

export const rate = (value: number | null): string => (value === null ? "–" : `${compact(value)}/s`);

export function bytes(value: string | number | undefined | null): string {
  let left = num(value);
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (left < 1024 || unit === "TiB") return `${left < 10 && unit !== "B" ? left.toFixed(1) : Math.round(left)} ${unit}`;
    left /= 1024;
  }
  return "";
}

/** Of `3661.5s`, as protobuf writes durations, or of seconds. */
export function seconds(value: string | number | undefined | null): number {
  return typeof value === "string" ? Number(value.replace(/s$/, "")) : (value ?? 0);
}

export function duration(value: string | number | undefined | null): string {
  const all = seconds(value);
  if (all < 1) return `${Math.round(all * 1000)} ms`;
  if (all < 60) return `${all < 10 ? all.toFixed(1) : Math.round(all)} s`;
  const parts: [number, string][] = [[86_400, "d"], [3600, "h"], [60, "min"]];
  const index = parts.findIndex(([size]) => all >= size);
  const [size, unit] = parts[index] as [number, string];
  const rest = parts[index + 1];
  const first = Math.floor(all / size);
  const more = rest === undefined ? 0 : Math.floor((all - first * size) / rest[0]);
  return more > 0 && rest !== undefined ? `${first} ${unit} ${more} ${rest[1]}` : `${first} ${unit}`;
}

/** In the reader's own zone, to the millisecond: 2026-11-28 02:03:04.567 */
export function time(value: string | undefined): string {
  if (value === undefined) return "–";
  const at = new Date(value);
  const two = (part: number): string => String(part).padStart(2, "0");
  const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return `${date} ${clock}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

const AGO: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86_400 };

/** A time as people write one: -10m, or 2026-11-21T03:00:00Z; null: it is none. */
export function timeOf(text: string): string | null {
  const ago = /^-(\d+)\s*([smhd])$/.exec(text.trim());
  if (ago !== null) return new Date(Date.now() - Number(ago[1]) * 1000 * (AGO[ago[2] as string] as number)).toISOString();
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? null : at.toISOString();
}

/** The last part of projects/P/topics/T. */
export const idOf = (name: string): string => name.slice(name.lastIndexOf("/") + 1);

export const projectOf = (name: string): string => name.split("/")[1] ?? "";

export const plural = (amount: number, one: string, many = `${one}s`): string => `${count(amount)} ${amount === 1 ? one : many}`;

const SPANS: [string, number][] = [
  ["d", 86_400],
  ["h", 3600],
  ["m", 60],
  ["s", 1],
];

/** `600s` of protobuf as people write it, and as the command line takes it: 10m; nothing for none. */
export function spanOf(value: string | number | undefined): string {
  const all = seconds(value);
  if (all === 0) return "";
  const [unit, size] = SPANS.find(([, one]) => all % one === 0) ?? ["s", 1];
  return `${all / size}${unit}`;
}

/** The other way round; null: it is no span of time. */
export function protoSpanOf(text: string): string | null {
  if (text.trim() === "") return "0s";
  const found = /^(\d+(?:\.\d+)?)\s*([dhms]?)$/.exec(text.trim());
  if (found === null) return null;
  const size = SPANS.find(([unit]) => unit === (found[2] === "" ? "s" : found[2]))?.[1] ?? 1;
  return `${Number(found[1]) * size}s`;
}

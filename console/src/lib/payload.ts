// Payloads as people read them. All of it is text in the end: nothing here makes markup.

export function bytesOf(data: string | undefined): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(data ?? ""), (one) => one.charCodeAt(0));
}

export function base64Of(text: string): string {
  const data = new TextEncoder().encode(text);
  let binary = "";
  for (let i = 0; i < data.length; i += 8192) binary += String.fromCharCode(...data.subarray(i, i + 8192));
  return btoa(binary);
}

/** The text that bytes are, or null: they are no text. */
export function textOf(data: Uint8Array<ArrayBuffer>): string | null {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
    return /[\x00-\x08\x0e-\x1f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}

/** Indented JSON; null: it is none. Numbers stay as they are written, however long. */
export function jsonOf(text: string): string | null {
  const begin = text.trimStart()[0];
  if (begin !== "{" && begin !== "[") return null;
  try {
    const value: unknown = JSON.parse(text);
    const exact = /\d{16,}|\d[eE.]\d{16,}/.test(text); // such numbers would come out rounded
    return exact ? text : JSON.stringify(value, null, 2);
  } catch {
    return null;
  }
}

export function hexOf(data: Uint8Array, most = 4096): string {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(data.length, most); at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const hex = row.map((one) => one.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const shown = row.map((one) => (one >= 32 && one < 127 ? String.fromCharCode(one) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex}  ${shown}`);
  }
  if (data.length > most) lines.push(`… ${data.length - most} more bytes`);
  return lines.join("\n");
}

/** One line of what a message says. */
export function previewOf(data: string | undefined, most = 160): string {
  if (data === undefined || data === "") return "";
  const head = bytesOf(data.slice(0, Math.ceil(most / 3) * 4 + 4));
  const text = textOf(head) ?? textOf(head.subarray(0, -3));
  if (text !== null) return text.replace(/\s+/g, " ").slice(0, most);
  return [...head.subarray(0, 32)].map((one) => one.toString(16).padStart(2, "0")).join(" ");
}

export const sizeOf = (data: string | undefined): number =>
  data === undefined ? 0 : (data.length / 4) * 3 - (data.endsWith("==") ? 2 : data.endsWith("=") ? 1 : 0);

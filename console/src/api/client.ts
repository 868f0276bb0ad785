// Calls of the server's methods by their REST names, as the caller whose token is held here, in memory alone.

export interface Violation {
  field: string;
  text: string;
}

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly permission: string | null = null,
    /** Names of fields of the request that are to blame, with why. */
    readonly violations: Violation[] = [],
  ) {
    super(message);
  }
}

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json | undefined };
export type Fields = { [key: string]: Json | undefined };

/** Verb, path template and body of a method, as the server's own table has them. */
export type MethodRoute = readonly [verb: string, template: string, body: string];

export interface About {
  version: string;
  /** Whether callers have to show who they are. */
  identifies: boolean;
  /** Whether it keeps an audit log. */
  audits: boolean;
  routes: Record<string, MethodRoute>;
}

let token = "";
const tokenListeners = new Set<() => void>();

/** A token is kept in memory: it is gone with the page, stands in no storage and in no address. */
export function setToken(value: string): void {
  token = value.trim();
  for (const listener of tokenListeners) listener();
}

export const hasToken = (): boolean => token !== "";

export function onToken(listener: () => void): () => void {
  tokenListeners.add(listener);
  return () => tokenListeners.delete(listener);
}

export function authorization(): Record<string, string> {
  return token === "" ? {} : { authorization: `Bearer ${token}` };
}

export interface PreparedRequest {
  verb: string;
  path: string;
  body: Fields | null;
}

/** A request as REST has it: what the path names goes there, the rest into the body or the query. */
export function prepared(route: MethodRoute, request: Fields): PreparedRequest {
  const [verb, template, body] = route;
  const left = structuredClone(request);
  const path = template.replace(/\{([\w.]+)(?:=([^}]*))?\}/g, (_, field: string, pattern: string | undefined) => {
    const value = String(taken(left, field.split(".").map(camel)) ?? "");
    return pattern === undefined ? encodeURIComponent(value) : value.split("/").map(encodeURIComponent).join("/");
  });
  if (body === "*") return { verb, path, body: left };
  let sent: Fields | null = null;
  if (body !== "") {
    sent = (left[camel(body)] ?? {}) as Fields;
    delete left[camel(body)];
  }
  const query = new URLSearchParams(flat("", left));
  return { verb, path: query.size > 0 ? `${path}?${query.toString()}` : path, body: sent };
}

const camel = (name: string): string => name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());

function taken(from: Fields, path: string[]): Json | undefined {
  const [first, ...rest] = path as [string, ...string[]];
  const value = from[first];
  if (rest.length > 0) return taken(value as Fields, rest);
  delete from[first];
  return value;
}

function flat(prefix: string, value: Json | undefined): [string, string][] {
  if (value === undefined || value === null || value === "") return [];
  if (Array.isArray(value)) return value.flatMap((one) => flat(prefix, one));
  if (typeof value === "object")
    return Object.entries(value).flatMap(([key, one]) => flat(prefix === "" ? key : `${prefix}.${key}`, one));
  return [[prefix, String(value)]];
}

export async function send<T>(request: PreparedRequest, signal?: AbortSignal, shown = authorization()): Promise<T> {
  const answer = await fetch(request.path, {
    method: request.verb,
    headers: { ...shown, ...(request.body === null ? {} : { "content-type": "application/json" }) },
    body: request.body === null ? null : JSON.stringify(request.body),
    credentials: "same-origin",
    cache: "no-store",
    ...(signal === undefined ? {} : { signal }),
  });
  const text = await answer.text();
  let content: unknown;
  try {
    content = text === "" ? {} : JSON.parse(text);
  } catch {
    throw new ApiError(answer.status, "UNKNOWN", `The server answered ${answer.status} with a body that is not JSON.`);
  }
  if (!answer.ok) throw errorOf(answer.status, content);
  return content as T;
}

function errorOf(status: number, content: unknown): ApiError {
  const error = (content as { error?: { message?: string; status?: string; details?: Fields[] } }).error ?? {};
  const denied = error.details?.find((one) => one["reason"] === "IAM_PERMISSION_DENIED");
  const permission = (denied?.["metadata"] as Fields | undefined)?.["permission"];
  const blamed = (error.details ?? []).flatMap((one) => (one["fieldViolations"] as Fields[] | undefined) ?? []);
  return new ApiError(
    status,
    error.status ?? "UNKNOWN",
    error.message ?? `The server answered ${status}.`,
    typeof permission === "string" ? permission : null,
    blamed.map((one) => ({ field: String(one["field"] ?? ""), text: String(one["description"] ?? "") })),
  );
}

/** Try a token before it is taken. Rejects where the server does not believe it. */
export async function signIn(value: string): Promise<void> {
  const shown = { authorization: `Bearer ${value.trim()}` };
  const asked = { verb: "POST", path: "/v1/server:testIamPermissions", body: { permissions: ["syncpoint.server.get"] } };
  await send(asked, undefined, shown);
  setToken(value);
}

let known: About | null = null;

export async function loadAbout(): Promise<About> {
  known = await send<About>({ verb: "GET", path: "/console/api/about", body: null });
  return known;
}

/** Whether this server has a method, such as `Admin.ListMembers`: pages of others are hidden. */
export const serves = (method: string): boolean => known?.routes[method] !== undefined;

export const audits = (): boolean => known?.audits === true;

export function requestOf(method: string, request: Fields): PreparedRequest {
  const route = known?.routes[method];
  if (route === undefined) throw new ApiError(501, "UNIMPLEMENTED", `This server has no method ${method}.`);
  return prepared(route, request);
}

export async function call<T>(method: string, request: Fields = {}, signal?: AbortSignal): Promise<T> {
  return send<T>(requestOf(method, request), signal);
}

// Rules of a subscription, and trials of them.

import { given } from "../lib/pairs";
import type { Fields } from "./client";
import type { PubsubMessage } from "./types";

export interface RuleParameter {
  text?: string;
  integer?: string;
  number?: number;
  truth?: boolean;
}

export interface Rule {
  name: string;
  sql?: string;
  correlation?: { properties?: Record<string, string> };
  action?: string;
  parameters?: Record<string, RuleParameter>;
}

export interface RulePart {
  rule?: string;
  depth?: number;
  text?: string;
  result?: string;
}

export interface Trial {
  selected?: boolean;
  copies?: PubsubMessage[];
  parts?: RulePart[];
}

/** A rule as its form has it: all text. */
export interface RuleDraft {
  name: string;
  sql: string;
  correlation: [string, string][];
  action: string;
  parameters: [string, string][];
}

export const EMPTY_DRAFT: RuleDraft = { name: "", sql: "", correlation: [], action: "", parameters: [] };

const valueOf = (of: RuleParameter): string => (of.text !== undefined ? JSON.stringify(of.text) : String(of.integer ?? of.number ?? of.truth ?? "null"));

export const draftOf = (rule: Rule): RuleDraft => ({
  name: rule.name,
  sql: rule.sql ?? "",
  correlation: Object.entries(rule.correlation?.properties ?? {}),
  action: rule.action ?? "",
  parameters: Object.entries(rule.parameters ?? {}).map(([name, value]) => [name, valueOf(value)]),
});

/** As the command line reads a value: JSON, else text. */
function parameterOf(text: string): Fields {
  if (/^-?\d{1,19}$/.test(text)) return { integer: text };
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "number") return { number: value };
    if (typeof value === "boolean") return { truth: value };
    if (value === null) return {};
    if (typeof value === "string") return { text: value };
  } catch {
    // It is no JSON, so it is text.
  }
  return { text };
}

export function ruleOf(draft: RuleDraft): Fields {
  const [equal, parameters] = [given(draft.correlation), given(draft.parameters)];
  return {
    ...(draft.name === "" ? {} : { name: draft.name }),
    ...(equal.length > 0 ? { correlation: { properties: Object.fromEntries(equal) } } : { sql: draft.sql }),
    ...(draft.action === "" ? {} : { action: draft.action }),
    ...(parameters.length === 0 ? {} : { parameters: Object.fromEntries(parameters.map(([name, value]) => [name, parameterOf(value)])) }),
  };
}

// The sites of a federation as this server sees them: where flows come from, where they go, how far behind each is.

import type { ArrivingFlow, Flows, LeavingFlow } from "../api/flows";
import { compact, num, plural } from "../lib/format";

interface Edge {
  site: string;
  flows: number;
  lag: number | null;
  words: string;
  bad: boolean;
}

/** The two sites in the name of a flow such as shop.eu-us.orders; null: it names none. */
export function sitesOf(flow: string): [from: string, to: string] | null {
  const found = /^[^.]+\.([^.-]+)-([^.-]+)\./.exec(flow);
  return found === null ? null : [found[1] as string, found[2] as string];
}

function grouped<T extends { name: string }>(flows: T[], siteOf: (name: string) => string | undefined, edge: (site: string, some: T[]) => Edge): Edge[] {
  const groups = new Map<string, T[]>();
  for (const one of flows) {
    const site = siteOf(one.name);
    if (site !== undefined) groups.set(site, [...(groups.get(site) ?? []), one]);
  }
  return [...groups].map(([site, some]) => edge(site, some));
}

const ROW = 64;
const WIDTH = 760;
const BOX = 170;

export function SiteMap({ flows, rate }: { flows: Flows; rate: (one: ArrivingFlow) => number | null }) {
  const from = grouped<ArrivingFlow>(
    flows.arriving,
    (name) => sitesOf(name)?.[0],
    (site, some) => {
      const rates = some.map(rate).filter((one) => one !== null);
      const blocked = some.filter((one) => one.gaps.length > 0).length;
      return { site, flows: some.length, lag: null, bad: blocked > 0, words: blocked > 0 ? `${blocked} blocked` : rates.length === 0 ? "" : `${compact(rates.reduce((a, b) => a + b, 0))}/s` };
    },
  );
  const to = grouped<LeavingFlow>(
    flows.leaving,
    (name) => sitesOf(name)?.[1],
    (site, some) => {
      const lag = some.reduce((all, one) => all + num(one.lagMessages), 0);
      return { site, flows: some.length, lag, bad: some.some((one) => one.lost > 0), words: lag === 0 ? "caught up" : `${compact(lag)} behind` };
    },
  );
  if (from.length === 0 && to.length === 0) return null;
  const here = flows.homes[0]?.site ?? sitesOf(flows.arriving[0]?.name ?? "")?.[1] ?? sitesOf(flows.leaving[0]?.name ?? "")?.[0] ?? "this server";
  const height = Math.max(from.length, to.length, 1) * ROW + 16;
  const middle = height / 2;
  const at = (edges: Edge[], index: number): number => middle + (index - (edges.length - 1) / 2) * ROW;
  const box = (x: number, y: number, title: string, note: string, key: string) => (
    <g key={key}>
      <rect x={x} y={y - 22} width={BOX} height={44} rx={7} />
      <text x={x + BOX / 2} y={y - 2} className="site">
        {title}
      </text>
      <text x={x + BOX / 2} y={y + 14} className="note">
        {note}
      </text>
    </g>
  );
  const homes = flows.homes.filter((one) => one.home === one.site).length;
  const words = [...from.map((one) => `from ${one.site}: ${plural(one.flows, "flow")} ${one.words}`), ...to.map((one) => `to ${one.site}: ${plural(one.flows, "flow")} ${one.words}`)];
  return (
    <svg className="site-map" role="img" aria-label={`Sites: ${words.join("; ")}`} viewBox={`0 0 ${WIDTH} ${height}`}>
      <defs>
        <marker id="arrow" viewBox="0 0 8 8" refX={7} refY={4} markerWidth={8} markerHeight={8} orient="auto">
          <path d="M0 0L8 4L0 8z" />
        </marker>
      </defs>
      {from.map((one, index) => (
        <g key={one.site} className={one.bad ? "edge bad" : "edge"}>
          <path d={`M${BOX} ${at(from, index)}L${(WIDTH - BOX) / 2 - 2} ${middle}`} markerEnd="url(#arrow)" />
          <text x={(BOX + (WIDTH - BOX) / 2) / 2} y={(at(from, index) + middle) / 2 - 6} className="note">
            {one.words}
          </text>
        </g>
      ))}
      {to.map((one, index) => (
        <g key={one.site} className={one.bad ? "edge bad" : "edge"}>
          <path d={`M${(WIDTH + BOX) / 2} ${middle}L${WIDTH - BOX - 2} ${at(to, index)}`} markerEnd="url(#arrow)" />
          <text x={((WIDTH + BOX) / 2 + WIDTH - BOX) / 2} y={(at(to, index) + middle) / 2 - 6} className="note">
            {one.words}
          </text>
        </g>
      ))}
      {from.map((one, index) => box(0, at(from, index), one.site, plural(one.flows, "flow"), `from ${one.site}`))}
      {box((WIDTH - BOX) / 2, middle, here, flows.homes.length === 0 ? "this server" : `this server, home of ${homes}`, "here")}
      {to.map((one, index) => box(WIDTH - BOX, at(to, index), one.site, plural(one.flows, "flow"), `to ${one.site}`))}
    </svg>
  );
}

// A chart of history: parts on top of each other, or lines; uPlot, in the colours of the theme.

import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";

import { compact } from "../lib/format";
import { color, onTheme } from "../lib/theme";

export const TONES = 8;

export interface ShownLine {
  label: string;
  values: (number | null)[];
}

interface Props {
  times: number[];
  lines: ShownLine[];
  stacked: boolean;
  label: string;
  /** How a number is written on the axis and in sentences. */
  shown?: (value: number) => string;
  height?: number;
  onHover?: (index: number | null) => void;
}

/** Of parts on top of each other: what is drawn of each is the sum of it and all below. */
export function piled(lines: ShownLine[]): ShownLine[] {
  const sums: (number | null)[] = [];
  return lines.map((line) => {
    line.values.forEach((value, index) => {
      if (value !== null || sums[index] === undefined) sums[index] = value === null ? null : (sums[index] ?? 0) + value;
    });
    return { label: line.label, values: [...sums] };
  });
}

const clock = (at: number, spanS: number): string => {
  const date = new Date(at * 1000);
  const time = date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(spanS < 1200 ? { second: "2-digit" } : {}) });
  return spanS > 2 * 86_400 ? date.toLocaleDateString("en-GB", { day: "numeric", month: "short" }) : time;
};

export function HistoryChart({ times, lines, stacked, label, shown = compact, height = 220, onHover }: Props) {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const hover = useRef(onHover);
  hover.current = onHover;
  const [palette, setPalette] = useState(0);
  const spanS = (times.at(-1) ?? 0) - (times[0] ?? 0);
  const drawn = stacked ? piled(lines).reverse() : lines;
  const data = [times, ...drawn.map((one) => one.values)] as uPlot.AlignedData;
  const newest = useRef(data);
  newest.current = data;
  const shape = `${drawn.map((one) => one.label).join()}|${stacked}|${spanS > 2 * 86_400}|${spanS < 1200}`;

  useEffect(() => onTheme(() => setPalette((one) => one + 1)), []);

  useEffect(() => {
    const box = holder.current;
    if (box === null) return;
    const axis = { stroke: color("--muted"), grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const tone = (index: number) => color(`--line-${((stacked ? drawn.length - 1 - index : index) % TONES) + 1}`);
    const made = new uPlot(
      {
        width: Math.max(120, box.clientWidth),
        height,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { show: !stacked } },
        scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), high === null || high <= 0 ? 1 : high * 1.08] } },
        axes: [
          { ...axis, size: 24, space: 70, values: (_, splits) => splits.map((one) => clock(one, spanS)) },
          { ...axis, size: 58, values: (_, splits) => splits.map((one) => shown(one)) },
        ],
        series: [
          {},
          ...drawn.map((one, index) => ({ label: one.label, stroke: tone(index), width: stacked ? 1 : 1.5, points: { show: false }, ...(stacked ? { fill: tone(index) } : {}) })),
        ],
        hooks: { setCursor: [(self) => hover.current?.(self.cursor.idx ?? null)] },
      },
      newest.current,
      box,
    );
    plot.current = made;
    const sized = new ResizeObserver(() => made.setSize({ width: Math.max(120, box.clientWidth), height }));
    sized.observe(box);
    return () => {
      sized.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, palette, height]); // data come by setData

  useEffect(() => plot.current?.setData(newest.current), [times, lines]);

  return <div ref={holder} className="history-chart" role="img" aria-label={label} />;
}

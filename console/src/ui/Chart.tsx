// A chart of the last minutes, or of longer: lines over time, drawn by uPlot in the colours of the theme.

import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";

import { compact } from "../lib/format";
import { color, onTheme } from "../lib/theme";

const SHOWN_S = 180;

export interface Line {
  label: string;
  /** Name of a colour of the theme, such as --line-1. */
  tone: string;
  points: [number, number][];
}

/** Lines share their times: a point that one of them lacks is a gap. */
function aligned(lines: Line[]): uPlot.AlignedData {
  const times = [...new Set(lines.flatMap((line) => line.points.map(([at]) => at)))].sort((a, b) => a - b);
  const columns = lines.map((line) => {
    const values = new Map(line.points);
    return times.map((at) => values.get(at) ?? null);
  });
  return [times, ...columns] as uPlot.AlignedData;
}

/** What is shown of time: always as much, so that lines move and do not stretch. */
function shownTime(newest: number | null, spanS: number): [number, number] {
  const end = newest ?? Date.now() / 1000;
  return [end - spanS, end];
}

export function Chart({ lines, height = 150, unit = "/s", label, spanS = SHOWN_S }: { lines: Line[]; height?: number; unit?: string; label: string; spanS?: number }) {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [palette, setPalette] = useState(0);
  const shape = lines.map((line) => `${line.label}${line.tone}`).join();

  useEffect(() => onTheme(() => setPalette((one) => one + 1)), []);

  useEffect(() => {
    const box = holder.current;
    if (box === null) return;
    const axis = { stroke: color("--muted"), grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const made = new uPlot(
      {
        width: Math.max(120, box.clientWidth),
        height,
        legend: { show: false },
        cursor: { y: false, points: { size: 6 } },
        scales: { x: { range: (_, _low, high) => shownTime(high, spanS) }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(1, (high ?? 0) * 1.15)] } },
        axes: [
          { ...axis, size: 24, space: 90, values: (_, splits) => splits.map((one) => new Date(one * 1000).toLocaleTimeString("en-GB", spanS > 1200 ? { hour: "2-digit", minute: "2-digit" } : {})) },
          { ...axis, size: 52, values: (_, splits) => splits.map((one) => compact(one)) },
        ],
        series: [
          {},
          ...lines.map((line, index) => ({
            label: line.label,
            stroke: color(line.tone),
            width: 1.5,
            points: { show: false },
            ...(index === 0 ? { fill: color("--area") } : {}),
          })),
        ],
      },
      aligned(lines),
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
  }, [shape, palette, height, spanS]); // data come by setData

  useEffect(() => plot.current?.setData(aligned(lines)), [lines]);

  return (
    <figure className="chart">
      <div ref={holder} role="img" aria-label={label} />
      <figcaption>
        {lines.map((line) => (
          <span key={line.label}>
            <i className={`swatch swatch-${line.tone.slice("--line-".length)}`} aria-hidden="true" />
            {line.label} <b>{line.points.length > 0 ? `${compact(line.points.at(-1)?.[1] ?? null)}${unit}` : "–"}</b>
          </span>
        ))}
      </figcaption>
    </figure>
  );
}

// An hour of a number as a small line, without axes.

const WIDTH = 96;
const HEIGHT = 20;
const HOUR_POINTS = 31;

/** Points from the left to the right; gaps stay gaps. */
export function Spark({ values, label }: { values: (number | null)[]; label: string }) {
  const top = Math.max(...values.map((one) => one ?? 0), 0);
  if (top <= 0) return <span className="muted">–</span>;
  const step = WIDTH / Math.max(1, Math.max(values.length, HOUR_POINTS) - 1);
  let path = "";
  let open = false;
  values.forEach((one, index) => {
    if (one !== null) path += `${open ? "L" : "M"}${(index * step).toFixed(1)} ${(HEIGHT - 1 - (one / top) * (HEIGHT - 3)).toFixed(1)}`;
    open = one !== null;
  });
  return (
    <svg className="spark" role="img" aria-label={label} width={WIDTH} height={HEIGHT} viewBox={`0 0 ${WIDTH} ${HEIGHT}`}>
      <path d={path} />
    </svg>
  );
}

// Names and values, as many as one likes: there is always a line left for one more.

export function Pairs({ legend, of, pairs, onChange }: { legend: string; of: string; pairs: [string, string][]; onChange: (pairs: [string, string][]) => void }) {
  const shown: [string, string][] = pairs.at(-1)?.[0] === "" ? pairs : [...pairs, ["", ""]];
  const change = (index: number, pair: [string, string]) => onChange(shown.map((one, at) => (at === index ? pair : one)));
  return (
    <fieldset>
      <legend>{legend}</legend>
      {shown.map(([name, value], index) => (
        <div className="pair" key={index}>
          <input aria-label={`Name of ${of} ${index + 1}`} placeholder="name" value={name} onChange={(event) => change(index, [event.target.value, value])} />
          <input aria-label={`Value of ${of} ${index + 1}`} placeholder="value" value={value} onChange={(event) => change(index, [name, event.target.value])} />
        </div>
      ))}
    </fieldset>
  );
}

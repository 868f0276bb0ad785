// Ctrl-K: pages, topics and subscriptions by a part of their names.

import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";

import { subscriptionsQuery, topicsQuery } from "../api/lists";
import { projectsQuery } from "../api/queries";
import { operationsHere } from "../lib/operations";
import { idOf, projectOf } from "../lib/format";
import { SERVER_PAGES } from "../navigation";
import { Dialog } from "./parts";

interface Target {
  key: string;
  kind: string;
  title: string;
  to: string;
}

const SHOWN = 30;

/** Earlier is better: what begins with the text, then what has it, then what has its letters in this order. */
function grade(title: string, wanted: string): number {
  const at = title.toLowerCase().indexOf(wanted);
  if (at === 0) return 0;
  if (at > 0) return 1;
  let found = 0;
  for (const letter of title.toLowerCase()) if (letter === wanted[found]) found += 1;
  return found === wanted.length ? 2 : 9;
}

export function Palette({ project, onClose }: { project: string | null; onClose: () => void }) {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const go = useNavigate();
  const projects = useQuery(projectsQuery).data;
  const wanted = text.trim() === "" ? {} : { q: text.trim() };
  const topics = useQuery({ ...topicsQuery(project ?? "", wanted, SHOWN), enabled: project !== null }).data?.rows;
  const subscriptions = useQuery({ ...subscriptionsQuery(project ?? "", wanted, SHOWN), enabled: project !== null }).data?.rows;

  const targets = useMemo((): Target[] => {
    const named = (kind: string, folder: string) => (one: { name: string }) => ({
      key: one.name,
      kind,
      title: idOf(one.name),
      to: `/p/${projectOf(one.name)}/${folder}/${encodeURIComponent(idOf(one.name))}`,
    });
    const page = (title: string, to: string): Target => ({ key: to, kind: "Page", title, to });
    return [
      page("Overview", "/"),
      ...operationsHere().map((one) => page(one.title, one.to)),
      ...SERVER_PAGES.filter((one) => one.shown()).map((one) => page(one.title(), one.to)),
      ...(project === null ? [] : ["Topics", "Subscriptions", "Snapshots", "Schemas"].map((one) => page(one, `/p/${project}/${one.toLowerCase()}`))),
      ...(projects ?? []).map((one) => ({ key: `project ${one}`, kind: "Project", title: one, to: `/p/${one}/topics` })),
      ...(topics ?? []).map(named("Topic", "topics")),
      ...(subscriptions ?? []).map(named("Subscription", "subscriptions")),
    ];
  }, [project, projects, topics, subscriptions]);

  const found = useMemo(() => {
    const wanted = text.trim().toLowerCase();
    if (wanted === "") return targets.slice(0, SHOWN);
    return targets
      .map((one) => ({ one, grade: grade(one.title, wanted) }))
      .filter((one) => one.grade < 9)
      .sort((a, b) => a.grade - b.grade)
      .slice(0, SHOWN)
      .map(({ one }) => one);
  }, [targets, text]);

  const take = (target: Target | undefined) => {
    if (target === undefined) return;
    onClose();
    void go({ to: target.to });
  };

  return (
    <Dialog title="Go to" onClose={onClose}>
      <input
        className="palette-input"
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={found[chosen] === undefined ? undefined : `palette-${chosen}`}
        aria-label="Topic, subscription or page"
        placeholder="Topic, subscription or page"
        value={text}
        autoFocus
        onChange={(event) => {
          setText(event.target.value);
          setChosen(0);
        }}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") setChosen(Math.min(found.length - 1, chosen + 1));
          else if (event.key === "ArrowUp") setChosen(Math.max(0, chosen - 1));
          else if (event.key === "Enter") take(found[chosen]);
          else return;
          event.preventDefault();
        }}
      />
      <ul id="palette-list" className="palette" role="listbox" aria-label="Found">
        {found.map((one, index) => (
          <li key={one.key} id={`palette-${index}`} role="option" aria-selected={index === chosen} onMouseMove={() => setChosen(index)} onClick={() => take(one)}>
            <span>{one.title}</span>
            <span className="muted">{one.kind}</span>
          </li>
        ))}
        {found.length === 0 && <li className="empty" role="option" aria-selected="false">No matches.</li>}
      </ul>
    </Dialog>
  );
}

// What is around every page: navigation, search, the state of the live stream, the theme.

import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useNavigate, useParams } from "@tanstack/react-router";
import { useContext, useEffect, useState, useSyncExternalStore } from "react";

import { hasToken, onToken, setToken } from "../api/client";
import { useStreamState } from "../api/live";
import { AboutContext, projectsQuery } from "../api/queries";
import { operationsHere } from "../lib/operations";
import { onTheme, setTheme, theme, type Theme } from "../lib/theme";
import { SERVER_PAGES } from "../navigation";
import { Palette } from "./Palette";

const THEMES: Record<Theme, { next: Theme; sign: string; title: string }> = {
  system: { next: "light", sign: "◐", title: "Theme: system" },
  light: { next: "dark", sign: "○", title: "Theme: light" },
  dark: { next: "system", sign: "●", title: "Theme: dark" },
};

const LAST = "syncpoint.project";

/** The project of the address, else the one that was looked at last, else the first. */
export function useProject(): string | null {
  const { project } = useParams({ strict: false });
  const { data } = useQuery(projectsQuery);
  useEffect(() => {
    if (project !== undefined) localStorage.setItem(LAST, project);
  }, [project]);
  if (project !== undefined) return project;
  const kept = localStorage.getItem(LAST);
  return kept !== null && data?.includes(kept) ? kept : (data?.[0] ?? null);
}

export function Shell() {
  const [searching, setSearching] = useState(false);
  const [menu, setMenu] = useState(false);
  const project = useProject();
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setSearching(true);
      }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  return (
    <div className="shell">
      <a className="skip" href="#content">
        Skip to content
      </a>
      <header className="top">
        <button type="button" className="quiet menu-button" aria-expanded={menu} aria-controls="navigation" onClick={() => setMenu(!menu)}>
          ☰<span className="visually-hidden"> Menu</span>
        </button>
        <Link to="/" className="brand">
          Syncpoint
        </Link>
        <button type="button" className="search-button" onClick={() => setSearching(true)}>
          <span>Search</span> <kbd>Ctrl K</kbd>
        </button>
        <div className="top-right">
          <StreamLight />
          <ThemeButton />
          <SignedIn />
        </div>
      </header>
      <nav id="navigation" className={menu ? "side open" : "side"} aria-label="Pages" onClick={() => setMenu(false)}>
        <Link to="/" activeOptions={{ exact: true }}>
          Overview
        </Link>
        <h2>
          Project <ProjectChoice project={project} />
        </h2>
        {project !== null && (
          <>
            <Link to="/p/$project/topics" params={{ project }}>
              Topics
            </Link>
            <Link to="/p/$project/subscriptions" params={{ project }}>
              Subscriptions
            </Link>
            <Link to="/p/$project/snapshots" params={{ project }}>
              Snapshots
            </Link>
            <Link to="/p/$project/schemas" params={{ project }}>
              Schemas
            </Link>
          </>
        )}
        {operationsHere().length > 0 && <h2>Operations</h2>}
        {operationsHere().map((one) => (
          <Link key={one.to} to={one.to}>
            {one.title}
          </Link>
        ))}
        <h2>Server</h2>
        {SERVER_PAGES.filter((one) => one.shown()).map((one) => (
          <Link key={one.to} to={one.to}>
            {one.title()}
          </Link>
        ))}
      </nav>
      <Outlet />
      {searching && <Palette project={project} onClose={() => setSearching(false)} />}
    </div>
  );
}

function ProjectChoice({ project }: { project: string | null }) {
  const { data = [] } = useQuery(projectsQuery);
  const go = useNavigate();
  const shown = project !== null && !data.includes(project) ? [project, ...data] : data;
  if (shown.length === 0) return null;
  return (
    <select
      aria-label="Project"
      value={project ?? ""}
      onClick={(event) => event.stopPropagation()}
      onChange={(event) => void go({ to: "/p/$project/topics", params: { project: event.target.value } })}
    >
      {shown.map((one) => (
        <option key={one}>{one}</option>
      ))}
    </select>
  );
}

function StreamLight() {
  const state = useStreamState();
  if (state === "idle") return null;
  const words = { opening: "Connecting", live: "Live", lost: "Connection lost" } as const;
  return (
    <span className={`light ${state}`} role="status">
      <i aria-hidden="true" />
      <span>{words[state]}</span>
    </span>
  );
}

function ThemeButton() {
  const now = useSyncExternalStore(onTheme, theme);
  const { next, sign, title } = THEMES[now];
  return (
    <button type="button" className="quiet" title={title} aria-label={title} onClick={() => setTheme(next)}>
      {sign}
    </button>
  );
}

function SignedIn() {
  const { identifies } = useContext(AboutContext);
  const signedIn = useSyncExternalStore(onToken, hasToken);
  if (!identifies || !signedIn) return null;
  return (
    <button type="button" className="quiet" onClick={() => setToken("")}>
      Sign out
    </button>
  );
}

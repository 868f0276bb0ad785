"""`syncpoint rollout`: another version or configuration goes from test to all of production, and back by itself.

Place: the outermost room; reads the manifest, opens the metadata of production, runs the controller.
Promise: `plan`, `check` and `status` change nothing. `start` returns when the rollout is over: 0 when done, 1 when it
was refused or went back.
"""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from syncpoint.base.model.errors import Aborted, FailedPrecondition
from syncpoint.base.model.wording import lasting
from syncpoint.programs.cli.cluster import format_option
from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import inform, print_answer, print_table

if TYPE_CHECKING:
    from syncpoint.catalog.metadata.store_client import SharedStore
    from syncpoint.programs.rollout.controller import RolloutController
    from syncpoint.programs.rollout.progress import RolloutState
    from syncpoint.programs.rollout.rollout_file import RolloutManifest
    from syncpoint.programs.rollout.rollout_plan import RolloutPlan

_T = TypeVar("_T")

file_argument = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.group(cls=Group)
def rollout() -> None:
    """Bring another version or configuration to production, step by step, and back when it is worse.

    \b
    Example:
      syncpoint rollout plan rollout.yaml
      syncpoint rollout start rollout.yaml
      syncpoint rollout status rollout.yaml       (in another terminal)
    """


@rollout.command()
@file_argument
@format_option
def plan(file: Path, form: str) -> None:
    """Show the steps, and reasons that prevent the start (exit code 1).

    \b
    Example:
      syncpoint rollout plan rollout.yaml
    """
    from syncpoint.programs.rollout.admission_check import refusals

    manifest, made = _planned(file)
    reports, problems = asyncio.run(_looked(made))
    refused = refusals(made, reports, problems)
    steps = _steps(made)
    if not print_answer(form, {"name": manifest.name, "steps": steps, "refused": refused}):
        rows = []
        for one in steps:
            gets = "; ".join(f"{name}: {', '.join(processes)}" for name, processes in one["gets"].items())
            rows.append([one["step"], gets or "-", lasting(one["watchS"]) if one["watchS"] else "-"])
        print_table(["STEP", "GETS THE RELEASE", "WATCHED"], rows)
    if refused:
        raise Problem("not ready to start", "\n  ".join(refused))


@rollout.command()
@file_argument
def check(file: Path) -> None:
    """Compare the processes of staging with production, and of test with staging; exit code 1 if they differ.

    \b
    Example:
      syncpoint rollout check rollout.yaml
    """
    from syncpoint.programs.rollout.parity import differences
    from syncpoint.programs.rollout.rollout_file import PRODUCTION, STAGING, TEST

    manifest, made = _planned(file)
    reports, _ = asyncio.run(_looked(made))
    may_differ = manifest.environments[TEST].may_differ
    found = [
        *differences(STAGING, reports[STAGING], PRODUCTION, reports[PRODUCTION]),
        *differences(TEST, reports[TEST], STAGING, reports[STAGING], may_differ=may_differ),
    ]
    if found:
        raise Problem("environments differ", "\n  ".join(dict.fromkeys(found)))
    count = sum(len(one) for one in reports.values())
    inform(f"{count} processes: versions and settings are the same, by role.")


@rollout.command()
@file_argument
def start(file: Path) -> None:
    """Start a rollout and drive it to its end, in the foreground; exit code 1 if it was refused or rolled back.

    If this command ends early, the rollout stands still until `rollout resume`.

    \b
    Example:
      syncpoint rollout start rollout.yaml
    """
    _drive(file, lambda controller: controller.start())


@rollout.command()
@file_argument
def resume(file: Path) -> None:
    """Continue a rollout whose controller ended.

    \b
    Example:
      syncpoint rollout resume rollout.yaml
    """
    _drive(file, lambda controller: controller.resume())


@rollout.command()
@file_argument
@click.option("--reason", default="", help="The reason, shown in its history.")
def abort(file: Path, reason: str) -> None:
    """Return every process to its previous version. If no controller drives the rollout, this command does.

    \b
    Example:
      syncpoint rollout abort rollout.yaml --reason "complaints from shop"
    """
    from syncpoint.programs.rollout.rollout_store import ask_to_abort, driven_by, read_state

    _, made = _planned(file)
    who = _who() + (f": {reason}" if reason else "")

    async def ask(store: SharedStore) -> tuple[RolloutState | None, str]:
        state = await read_state(store)
        if state is not None and not state.over:
            await ask_to_abort(store, who)
        return state, await driven_by(store)

    state, driver = _in_production(made, ask)
    if state is None or state.over:
        raise Problem(
            "there is no rollout to abort" if state is None else f"rollout {state.name} is {state.state}",
            "To leave a version that is fully rolled out, roll out the previous version.",
        )
    if driver:
        inform(f"{driver} is rolling it back; `syncpoint rollout status {file}` shows the progress.")
    else:
        _drive(file, lambda controller: controller.resume(), good="rolled back")


@rollout.command()
@file_argument
@format_option
def status(file: Path, form: str) -> None:
    """Show the progress and history of the newest rollout.

    \b
    Example:
      syncpoint rollout status rollout.yaml --format json
    """
    from syncpoint.programs.rollout.rollout_store import driven_by, read_state

    _, made = _planned(file)

    async def read(store: SharedStore) -> tuple[RolloutState | None, str]:
        return await read_state(store), await driven_by(store)

    state, driver = _in_production(made, read)
    if print_answer(form, None if state is None else {**state.encode(), "driven_by": driver}):
        return
    if state is None:
        inform("No rollout has started yet.")
        return
    rows = [
        ["name", state.name],
        ["version", f"{state.version} at {state.commit[:12]}"],
        ["state", state.state],
        ["step", f"{state.step} ({', '.join(state.steps)})"],
        ["watched", f"{lasting(state.watched_s)} of {lasting(state.watch_s)}" if state.watch_s else ""],
        ["share of work", ", ".join(f"{role} {share:.0%}" for role, share in state.shares.items())],
        *([key.replace("_", " "), f"{value:g}"] for key, value in state.figures.items()),
        ["waiting for", state.waits_for],
        ["rolled back because", state.reason],
        ["controller", driver or ("" if state.over else f"none; run: syncpoint rollout resume {file}")],
    ]
    print_table(["FIELD", "VALUE"], [row for row in rows if row[1]])
    print_table(
        ["TIME", "WHAT"],
        [[time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)), text] for at, text in state.history],
    )


def _planned(file: Path) -> tuple[RolloutManifest, RolloutPlan]:
    from syncpoint.programs.rollout.controller import plan_of
    from syncpoint.programs.rollout.rollout_file import load

    manifest = load(file)
    return manifest, plan_of(manifest)


def _steps(made: RolloutPlan) -> list[dict[str, Any]]:
    before: dict[str, frozenset[str]] = {}
    found = []
    for step in made.steps:
        gets = {
            name: [one for one in made.in_order(name) if one in names - before.get(name, frozenset())]
            for name, names in step.released.items()
        }
        found.append({"step": step.name, "gets": {k: v for k, v in gets.items() if v}, "watchS": step.watch_s})
        before = dict(step.released)
    return found


async def _looked(made: RolloutPlan) -> tuple[dict[str, Any], dict[str, list[str]]]:
    from syncpoint.programs.rollout.operated import OperatedEnvironment

    names = list(made.fleets)
    found = await asyncio.gather(*(OperatedEnvironment(made.fleets[name], 0.0).look() for name in names))
    return (
        {name: one[0] for name, one in zip(names, found, strict=True)},
        {name: one[1] for name, one in zip(names, found, strict=True)},
    )


def _in_production(made: RolloutPlan, act: Callable[[SharedStore], Awaitable[_T]]) -> _T:
    from syncpoint.node.cluster.cluster_environment import ClusterEnvironment
    from syncpoint.node.cluster.settings import load
    from syncpoint.node.cluster.tls import operator_tls
    from syncpoint.programs.rollout.rollout_file import PRODUCTION

    settings = load(made.fleets[PRODUCTION].environment.cluster)

    async def run() -> _T:
        store = await ClusterEnvironment.of(operator_tls(settings)).metadata(settings)
        try:
            return await act(store)
        finally:
            await store.close()

    return asyncio.run(run())


def _drive(file: Path, how: Callable[[RolloutController], Awaitable[RolloutState]], *, good: str = "done") -> None:
    from syncpoint.programs.rollout.controller import RolloutController
    from syncpoint.programs.rollout.operated import OperatedEnvironment
    from syncpoint.programs.rollout.rollout_store import RolloutStore

    manifest, made = _planned(file)

    async def act(store: SharedStore) -> RolloutState:
        held = RolloutStore(store, _who())
        operated = {name: OperatedEnvironment(fleet, manifest.restart_within_s) for name, fleet in made.fleets.items()}
        controller = RolloutController(made, held, operated, clock=time.time, report=_report)
        try:
            return await how(controller)
        finally:
            with suppress(Exception):  # its lease ends by itself
                await held.release()

    try:
        state = _in_production(made, act)
    except FailedPrecondition as error:
        raise Problem("nothing was done", "\n  ".join(error.message.splitlines())) from error
    except Aborted as error:
        raise Problem(error.message, f"`syncpoint rollout status {file}` shows the current controller.") from error
    if state.state != good:
        raise Problem(
            f"rollout {state.name} is {state.state}: {state.reason}", "All processes run their previous version."
        )


def _report(text: str) -> None:
    inform(f"{time.strftime('%H:%M:%S')}  {text}")


def _who() -> str:
    return f"{os.environ.get('USER', 'somebody')} at {platform.node()}, process {os.getpid()}"

"""`syncpoint simulate routing`: uniformity against movement over e, as a table and a plot.

Place: needs no server; for users who set `balance` in cluster.yaml. numpy is needed (the extra `simulate`).
Promise: the assignment is computed by the code that routers run; the same options give the same figures.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncpoint.programs.cli.errors import Problem
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import inform, print_answer
from syncpoint.programs.cli.settings import Settings, with_settings

if TYPE_CHECKING:
    from syncpoint.programs.topology.route_simulation import SpreadResult, SpreadRow

BLUE, RED, GREEN, GREY = "#1f6fb4", "#c8442c", "#3a8f3a", "#888888"
COLUMNS = ["highest", "gone", "gone_anew", "come", "come_anew", "churn", "churn_anew"]


@click.group(cls=Group)
def simulate() -> None:
    """Try out routing, on paper."""


@simulate.command()
@click.option("--forwarders", type=click.IntRange(2, 20_000), default=1_000, show_default=True)
@click.option("--clients", type=click.IntRange(10, 5_000_000), default=1_000_000, show_default=True)
@click.option("--skew", type=click.FloatRange(0, 2), default=0.8, show_default=True, help="Zipf exponent of the loads.")
@click.option(
    "--share",
    type=click.FloatRange(0.001, 1),
    default=0.2,
    show_default=True,
    help="Split clients until each part is at most this share of an average forwarder's load.",
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write the plot here (SVG).")
@with_settings
def routing(
    settings: Settings, forwarders: int, clients: int, skew: float, share: float, seed: int, plot: Path | None
) -> None:
    """Spread clients over forwarders for several values of e; remove a forwarder, add one, change loads; report how
    much load moved.

    \b
    HIGHEST     load of the fullest forwarder; 1 is an average one
    GONE        load that moves when one forwarder is lost, in percent of all (its own share must)
    COME        load that moves when one is added
    CHURN       load that moves when the loads of 1 % of the clients double or halve
    ... ANEW    the same when the assignment is computed anew each time, instead of kept where it may stay

    \b
    Example:
      syncpoint simulate routing --forwarders 1000 --clients 1000000 --plot routing.svg
    """
    try:
        from syncpoint.programs.topology.route_simulation import Scenario
        from syncpoint.programs.topology.route_simulation import simulate as run
    except ImportError as error:
        raise Problem(f"numpy is needed for this: {error}", "pip install 'syncpoint[simulate]'") from error

    scenario = Scenario(forwarders=forwarders, clients=clients, skew=skew, share=share, seed=seed)
    result = run(scenario, inform)
    if plot is not None:
        plot.write_text(drawn(result))
        inform(f"Wrote {plot}.")
    headings = ["E", "HIGHEST", "GONE", "LOST RECOMPUTED", "COME", "ADDED RECOMPUTED", "CHURN", "CHURN RECOMPUTED"]
    print_answer(
        settings.format,
        [{"e": row.e, **{name: getattr(row, name) for name in COLUMNS}} for row in result.rows],
        headings,
        [_cells(row) for row in result.rows],
    )


def _cells(row: SpreadRow) -> list[str]:
    e = "unbounded" if row.e is None else f"{row.e:g}"
    return [e, f"{row.highest:.3f}", *(f"{100 * getattr(row, name):.4f}%" for name in COLUMNS[1:])]


def drawn(result: SpreadResult) -> str:
    """The plot."""
    from syncpoint.programs.topology.route_plot import Axis, Panel, PlotLine, svg, ticks

    rows = [row for row in result.rows if row.e is not None]
    free = result.rows[-1]
    scenario = result.scenario

    def points(name: str) -> list[tuple[float, float]]:
        return [(row.e or 0.0, 100 * getattr(row, name)) for row in rows]

    tried = [row.e or 0.0 for row in rows]
    e_axis = Axis("e (log scale)", tried[0], tried[-1], tried, _short, log=True)
    highs = ticks(max(row.highest for row in result.rows) - 1)
    even = Axis("highest load / average", 1.0, 1 + highs[-1], [1 + one for one in highs], lambda one: f"{one:.2f}")
    moves = ticks(100 * max(max(row.gone_anew, row.come_anew, row.gone) for row in rows))
    moved = Axis("load that moves, % of all", 0.0, moves[-1], moves, lambda one: f"{one:g}")
    both = ticks(100 * max(row.come + row.churn for row in rows))
    against = Axis("one added + loads changed, % of all", 0.0, both[-1], both, lambda one: f"{one:g}")
    ideal = 100 / (scenario.forwarders + 1)
    panels = [
        Panel(
            "Uniformity over e",
            e_axis,
            even,
            [
                PlotLine("measured", BLUE, [(row.e or 0.0, row.highest) for row in rows]),
                PlotLine(
                    "the bound, 1 + e", GREY, [(e, 1 + e) for row in rows if (e := row.e or 0.0) <= highs[-1]], True
                ),
                PlotLine("no bound", RED, [(rows[0].e or 0.0, free.highest), (rows[-1].e or 1.0, free.highest)], True),
            ],
        ),
        Panel(
            "Movement over e",
            e_axis,
            moved,
            [
                PlotLine("one forwarder lost, sticky", BLUE, points("gone")),
                PlotLine("one lost, recomputed", RED, points("gone_anew")),
                PlotLine("one added, sticky", GREEN, points("come")),
                PlotLine(f"an equal share ({ideal:.3g}%)", GREY, [(row.e or 0.0, ideal) for row in rows], True),
            ],
        ),
        Panel(
            "Uniformity against movement",
            even._replace(title="highest load / average"),
            against,
            [
                PlotLine(
                    "sticky; labels are e",
                    BLUE,
                    [(row.highest, 100 * (row.come + row.churn)) for row in rows],
                    labels=[_short(row.e or 0.0) for row in rows],
                ),
            ],
        ),
    ]
    return svg(
        "Bounded loads in rendezvous order",
        f"{scenario.forwarders:,} forwarders, {scenario.clients:,} clients with loads by Zipf {scenario.skew:g}, "
        f"in {result.parts:,} parts of at most {scenario.share:g} of an average forwarder",
        panels,
    )


def _short(value: Any) -> str:
    return f"{value:g}".removeprefix("0")

"""`syncpoint slo`: what is promised, whether it is kept, what a month's agreement comes to, and rules for Prometheus.

Place: calls of syncpoint.admin.v1; `rules` asks no server.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from syncpoint.base.model.wording import lasting
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import inform, print_answer, print_table
from syncpoint.programs.cli.settings import Settings, with_settings

NO_DATA, NOT_APPLICABLE = 2, 3


@click.group(cls=Group)
def slo() -> None:
    """Show service level objectives and whether they are met."""


@slo.command("list")
@with_settings
def list_(settings: Settings) -> None:
    """Show the current values of the ten indicators and the state of each objective.

    BUDGET is the remaining share of the error budget; BURNS is the burn rate over the last hour (1 is the sustainable
    rate).

    \b
    Example:
      syncpoint slo list
    """
    from syncpoint.wire.protobuf.messages import admin

    with settings.client() as client:
        slis = client.call("Admin.ListSlis", admin.ListSlisRequest()).slis
        slos = client.call("Admin.ListSlos", admin.ListSlosRequest()).slos
    if print_answer(settings.format, {"slis": slis, "slos": slos}):
        return
    print_table(["INDICATOR", "NOW", "EVENTS"], [[one.name, value_of(one), f"{one.events:.0f}"] for one in slis])
    inform("")
    print_table(
        ["OBJECTIVE", "PROMISED", "GOOD", "BUDGET", "BURNS"],
        [
            [
                one.name,
                one.objective,
                "-" if one.state in (NO_DATA, NOT_APPLICABLE) else f"{100 * one.good_ratio:.4g}%",
                state_of(one.state) or f"{100 * one.budget_left:.4g}%",
                next((f"{rate.rate:.3g}" for rate in one.burn_rates if rate.window.seconds == 3600), ""),
            ]
            for one in slos
        ],
    )


def state_of(state: int) -> str:
    """What stands in place of a number; empty where there is one."""
    return {NO_DATA: "no data", NOT_APPLICABLE: "not applicable"}.get(state, "")


def value_of(sli: Any) -> str:
    """The value of an indicator, with its unit."""
    if sli.state in (NO_DATA, NOT_APPLICABLE):
        return state_of(sli.state)
    return f"{100 * sli.value:.5g}%" if sli.unit == "ratio" else lasting(sli.value)


@slo.command()
@click.option("--month", default="", metavar="YYYY-MM", help="[the current one]")
@with_settings
def report(settings: Settings, month: str) -> None:
    """Report a month's agreement: promised, measured and credited.

    \b
    Example:
      syncpoint slo report --month 2026-11
    """
    from syncpoint.wire.protobuf.messages import admin

    found = settings.call("Admin.GetSlaReport", admin.GetSlaReportRequest(month=month))
    if print_answer(settings.format, found):
        return
    print_table(
        ["OBJECTIVE", "PROMISED", "MEASURED", "EVENTS", "CREDIT"],
        [
            [
                one.slo,
                f"{100 * one.promised:.6g}%",
                state_of(one.state) or f"{100 * one.measured:.6g}%",
                f"{one.events:.0f}",
                f"{one.credit_percent:g}%",
            ]
            for one in found.lines
        ],
    )
    whole = "" if found.complete else " (month to date)"
    share = f"{100 * found.measured_ratio:.4g}%"
    inform(f"{found.month}{whole}: measured for {share} of it; credit {found.credit_percent:g}%.")


@slo.command()
@click.option(
    "--monitor",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The monitor's file, for its objectives [the built-in ones].",
)
def rules(monitor: Path | None) -> None:
    """Print recording and alerting rules for Prometheus, identical to the server's built-in rules.

    \b
    Example:
      syncpoint slo rules > /etc/prometheus/syncpoint.rules.yaml
    """
    from syncpoint.watch.monitor.monitor_settings import defaults, load_monitor
    from syncpoint.watch.monitor.prometheus_rules import rules_file

    settings = defaults() if monitor is None else load_monitor(monitor)
    click.echo(rules_file(settings.objectives, settings.runbooks), nl=False)

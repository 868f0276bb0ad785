"""`syncpoint gateway`: one address in front of several sites, and what operators say to it.

Place: the outermost room; `gateway_process` runs it, `front.gateway` is what it does.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request

import click

from syncpoint.base.model.errors import SyncpointError
from syncpoint.programs.cli.errors import Problem, explained_by
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.metrics_export import metrics_export, metrics_export_options
from syncpoint.programs.cli.output import inform, print_answer
from syncpoint.programs.cli.settings import Settings, with_settings

if TYPE_CHECKING:
    from syncpoint.front.gateway.gateway_file import GatewayFile

ADMIN = "127.0.0.1:9470"
HEADINGS = ["SITE", "STATE", "ANSWERS", "REGION", "WEIGHT", "STREAMS", "CALLS", "FAILED", "CHANGES", "WHY"]


@click.group(cls=Group)
def gateway() -> None:
    """One address in front of several sites, so that clients need nothing for disaster recovery."""


def _config(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--config",
        "path",
        type=click.Path(dir_okay=False, path_type=Path),
        default=Path("gateway.yaml"),
        show_default=True,
        help="The file with the sites.",
    )(command)


def _reached(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--admin", default=ADMIN, show_default=True, metavar="HOST:PORT", help="Its admin address.")(
        command
    )
    return click.option(
        "--token-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A file with the token of admin.token_file.",
    )(command)


@gateway.command()
@_config
@with_settings
def validate(settings: Settings, path: Path) -> None:
    """Check a file, and show its sites.

    \b
    Example:
      syncpoint gateway validate --config gateway.yaml
    """
    file = _load(path)
    print_answer(
        settings.format,
        [
            {"site": one.name, "endpoint": one.endpoint, "region": one.region, "weight": one.weight}
            for one in file.sites
        ],
        ["SITE", "ENDPOINT", "REGION", "WEIGHT"],
        [[one.name, one.endpoint, one.region, str(one.weight)] for one in file.sites],
    )


@gateway.command()
@_config
@metrics_export_options
@with_settings
def run(settings: Settings, path: Path, otlp_metrics: str, otlp_metrics_interval: float | None) -> None:
    """Run a gateway until Ctrl-C. Any number may run, with any load balancer in front.

    \b
    Example:
      syncpoint gateway run --config gateway.yaml
    """
    import uvloop

    from syncpoint.programs.cli.gateway_process import run_gateway

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    file, export = _load(path), metrics_export(otlp_metrics, otlp_metrics_interval)

    def ready(clients: str, operators: str) -> None:
        inform(f"clients: {clients}  admin: http://{operators}  sites: {', '.join(one.name for one in file.sites)}")

    try:
        uvloop.run(run_gateway(file, ready, export))
    except OSError as error:
        raise Problem(
            f"The gateway cannot start: {error}", "Check `listen`, `admin` and the paths in the file."
        ) from error
    inform("stopped")


@gateway.command()
@_reached
@with_settings
def status(settings: Settings, admin: str, token_file: Path | None) -> None:
    """Show the sites of a running gateway, and which one is the home.

    \b
    Example:
      syncpoint gateway status
    """
    _show(settings, _asked(admin, token_file, "/gateway.json"))


@gateway.command()
@click.argument("site")
@click.option("--force", is_flag=True, help="Mask it even if the budget of changes is used up.")
@_reached
@with_settings
def mask(settings: Settings, site: str, force: bool, admin: str, token_file: Path | None) -> None:
    """Take a SITE out: publishers go elsewhere at once, subscribers when what they have is acknowledged or drained.

    \b
    Example:
      syncpoint gateway mask eu
    """
    _show(settings, _asked(admin, token_file, f"/sites/{quote(site, safe='')}/mask", change=True, force=force))
    inform(f"[{site}] is masked; `syncpoint gateway unmask {site}` takes it back.")


@gateway.command()
@click.argument("site")
@click.option("--force", is_flag=True, help="Unmask it even if it does not answer, or beyond the budget.")
@_reached
@with_settings
def unmask(settings: Settings, site: str, force: bool, admin: str, token_file: Path | None) -> None:
    """Take a SITE back that was masked.

    \b
    Example:
      syncpoint gateway unmask eu
    """
    _show(settings, _asked(admin, token_file, f"/sites/{quote(site, safe='')}/unmask", change=True, force=force))
    inform(f"[{site}] takes calls.")


def _load(path: Path) -> GatewayFile:
    from syncpoint.front.gateway.gateway_file import load

    with explained_by("gateway", path):
        return load(path)


def _asked(admin: str, token_file: Path | None, path: str, *, change: bool = False, force: bool = False) -> Any:
    from syncpoint.front.gateway.gateway_peers import DIRECT, OPERATOR

    headers = {OPERATOR: "1"}
    try:
        if token_file is not None:
            headers["authorization"] = f"Bearer {token_file.read_text().strip()}"
        url = f"http://{admin}{path}{'?force' if force else ''}"
        with DIRECT.open(Request(url, headers=headers, method="POST" if change else "GET"), timeout=10) as answer:
            return json.loads(answer.read())
    except HTTPError as error:
        text = error.read()
        try:
            raise Problem(json.loads(text)["error"]) from error
        except (ValueError, KeyError):
            raise Problem(f"{admin} answered {error.code}.") from error
    except (URLError, OSError, ValueError) as error:
        raise Problem(f"No gateway answers at {admin}: {error}.", "Give its admin address by --admin.") from error
    except SyncpointError as error:
        raise Problem(error.message) from error


def _show(settings: Settings, found: dict[str, Any]) -> None:
    rows = [
        [
            one["site"],
            one["state"],
            "yes" if one["answers"] else "no",
            one["region"],
            str(one["weight"]),
            str(one["streams"]),
            f"{one['calls']:,}",
            f"{one['failed']:,}",
            str(one["changes"]),
            "; ".join(why for why in (one["error"], one["held"], *one.get("differs", ())) if why),
        ]
        for one in found["sites"]
    ]
    print_answer(settings.format, found, HEADINGS, rows)

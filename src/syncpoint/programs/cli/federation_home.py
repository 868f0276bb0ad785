"""`syncpoint federation home`: which site delivers a subscription that several sites have.

Place: beside `federation`; the move itself is `federation.acks.home_move`.
"""

from __future__ import annotations

from pathlib import Path

import click

from syncpoint.base.model.errors import FailedPrecondition, NotFound, SyncpointError
from syncpoint.programs.cli.errors import EXIT_CODES, Problem
from syncpoint.programs.cli.federation_file import file_argument, load_file
from syncpoint.programs.cli.output import inform
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.values import SecondsType


@click.command()
@click.argument("subscription")
@click.argument("site")
@file_argument
@click.option(
    "--drain",
    type=SecondsType(),
    default="30s",
    show_default=True,
    help="Wait at most this long for consumers elsewhere.",
)
@click.option("--force", is_flag=True, help="Move it although another site does not answer or is not copied.")
@with_settings
def home(settings: Settings, subscription: str, site: str, file: Path, drain: float, force: bool) -> None:
    """Let SITE deliver a SUBSCRIPTION, and the other sites hold their consumers.

    Consumers may stay attached everywhere. First the others stop, then acknowledgements are brought to SITE, then SITE
    begins.

    \b
    Example:
      syncpoint federation home billing us federation.yaml
    """
    from syncpoint.programs.federation.acks.home_move import HomeMove
    from syncpoint.programs.federation.servers import Servers

    _, links = load_file(file)
    with Servers() as servers:
        try:
            moved = HomeMove(links, servers, subscription, site).move(drain, force=force)
        except NotFound as error:
            raise Problem(
                error.message, "Set `acks: true` in a namespace or a `replicate` task of these sites."
            ) from error
        except FailedPrecondition as error:
            raise Problem(error.message, exit_code=EXIT_CODES.get(error.code, 1)) from error
        except SyncpointError as error:
            raise Problem(str(error), "Run the command again: it goes on where it was.") from error
    inform(f"[{subscription}] is delivered by {moved.home} (epoch {moved.epoch}).")
    if moved.outstanding is None:
        inform(
            "What consumers of the other sites still have is unknown, so messages may come twice: the exchange of"
            " acknowledgements fails (`syncpoint federation acks`), or pubsub.subscriptions.get is not granted."
        )
    elif moved.outstanding:
        inform(f"Consumers of the other sites still have {moved.outstanding} messages, which may be delivered twice.")
    for name in sorted(moved.silent):
        inform(f"{name} does not answer; `federation run` lets it know when it is back.")

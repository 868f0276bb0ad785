"""`syncpoint federation keys`: which site delivers which ordering keys of a subscription that several sites have.

Place: beside `federation`; the moves themselves are `federation.owned_keys.key_move`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncpoint.base.model.errors import FailedPrecondition, NotFound, SyncpointError
from syncpoint.base.model.key_homes import SLOTS, Slots, ranges_of, slot_of
from syncpoint.base.model.wording import utc_text
from syncpoint.programs.cli.errors import EXIT_CODES, Problem
from syncpoint.programs.cli.federation_file import file_argument, load_file
from syncpoint.programs.cli.help_text import Group
from syncpoint.programs.cli.output import inform, print_json, print_table
from syncpoint.programs.cli.settings import Settings, with_settings
from syncpoint.programs.cli.values import SecondsType

if TYPE_CHECKING:
    from syncpoint.programs.federation.owned_keys.key_sites import KeySites, KnownKeys

drain_option = click.option(
    "--drain",
    type=SecondsType(),
    default="30s",
    show_default=True,
    help="Wait at most this long for consumers and copies.",
)
force_option = click.option(
    "--force",
    is_flag=True,
    help="Move them although a site does not answer, or something is not copied or acknowledged.",
)


@click.group(cls=Group)
def keys() -> None:
    """Let each ordering key of a subscription be delivered by one site at a time.

    Consumers may be attached everywhere. Keys fall into 256 slots by their hash.

    \b
    Examples:
      syncpoint federation keys balance billing
      syncpoint federation keys show billing
    """


@keys.command()
@click.argument("subscription")
@file_argument
@click.option("--key", default=None, help="Show only the slot of this key.")
@with_settings
def show(settings: Settings, subscription: str, file: Path, key: str | None) -> None:
    """Show which site delivers which slots of a SUBSCRIPTION, as far as each site knows.

    \b
    Example:
      syncpoint federation keys show billing federation.yaml
    """
    with _sites(file, subscription) as sites, _as_problems():
        known = sites.known()
    slot = None if key is None else slot_of(key.encode())
    shown = _shown(known, slot)
    if settings.format == "json":
        print_json({"subscription": subscription, "ranges": shown, "silent": dict(known.silent)})
        return
    print_table(["SLOTS", "SITE", "GENERATION", "STATE"], [tuple(map(str, one.values())) for one in shown])
    for name, why in sorted(known.silent.items()):
        inform(f"{name} does not answer: {why}")


@keys.command()
@click.argument("subscription")
@click.argument("site")
@file_argument
@click.option("--slots", default=None, metavar="FIRST-LAST", help="Move these. Without --slots and --key: all.")
@click.option("--key", multiple=True, help="Move the slot of this key. May be repeated.")
@drain_option
@force_option
@with_settings
def move(
    settings: Settings,
    subscription: str,
    site: str,
    file: Path,
    slots: str | None,
    key: tuple[str, ...],
    drain: float,
    force: bool,
) -> None:
    """Let SITE deliver some keys of a SUBSCRIPTION.

    Their messages are held, acknowledged and copied before SITE begins; other keys are not held up.

    \b
    Examples:
      syncpoint federation keys move billing us --slots 0-63
      syncpoint federation keys move billing us --key customer-17
    """
    wanted = {slot_of(one.encode()) for one in key} | set(_range(slots) if slots else () if key else range(SLOTS))
    _move(file, subscription, dict.fromkeys(wanted, site), drain, force=force)


@keys.command()
@click.argument("subscription")
@file_argument
@click.option(
    "--weight",
    multiple=True,
    metavar="SITE=WEIGHT",
    help="The share of a site; 0 takes all keys from it. Default: the share in the file, else 1.",
)
@drain_option
@force_option
@with_settings
def balance(
    settings: Settings, subscription: str, file: Path, weight: tuple[str, ...], drain: float, force: bool
) -> None:
    """Share the keys of a SUBSCRIPTION among its sites, with as few moves as possible.

    \b
    Examples:
      syncpoint federation keys balance billing
      syncpoint federation keys balance billing --weight eu=2 --weight us=1
      syncpoint federation keys balance billing --weight eu=0     # eu is taken out of service
    """
    from syncpoint.programs.federation.owned_keys.key_shares import balanced

    given = dict(_weight(one) for one in weight)
    with _sites(file, subscription) as sites, _as_problems():
        sites.check(given)
        newest = sites.known().newest
        declared = dict(next((link.keys.weights for link in sites.links if link.keys is not None), ()))
    weights = {name: given.get(name, declared.get(name, 1.0)) for name in sites.ends}
    try:
        wanted = balanced(newest, weights)
    except ValueError as error:
        raise Problem(f"--weight: {error}.", "Give a site a weight above 0.") from error
    _move(file, subscription, wanted, drain, force=force)


@keys.command()
@file_argument
@with_settings
def takeovers(settings: Settings, file: Path) -> None:
    """List keys that were taken from sites that did not answer, and what may have been delivered twice.

    `federation run` writes it into its state folder. With --format json the ids of these messages are listed, too (up
    to 1000 of each takeover).

    \b
    Example:
      syncpoint federation keys takeovers federation.yaml
    """
    from syncpoint.programs.federation.state import StateFolder

    records = StateFolder(load_file(file)[0].runtime.state).takeovers()
    if settings.format == "json":
        print_json([{key: value for key, value in one.items() if key != "known"} for one in records])
        return
    rows = [
        (
            one["subscription"],
            one["lost"],
            str(one["slots"]),
            _time(one["at"]),
            _time(one["back_at"]) if one["back_at"] else "not yet",
            _twice(one),
        )
        for one in records
    ]
    print_table(["SUBSCRIPTION", "TAKEN FROM", "SLOTS", "AT", "BACK", "TWICE"], rows)


def _time(at: float) -> str:
    return utc_text(int(at * 1e6), "seconds")


def _twice(record: Mapping[str, Any]) -> str:
    if not record["back_at"]:
        return "known once it is back"
    twice = "unknown" if record["twice"] is None else f"{record['twice']:,}"
    return f"{twice}, and up to {record['lent']:,} more" if record["lent"] else twice


def _move(file: Path, subscription: str, wanted: Mapping[int, str], drain: float, *, force: bool) -> None:
    from syncpoint.programs.federation.owned_keys.key_move import KeyMove

    with _sites(file, subscription) as sites, _as_problems():
        moved = KeyMove(sites).move(wanted, drain, force=force)
        newest = sites.known().newest
    if not moved.slots:
        inform(f"Keys of [{subscription}] are where they should be (generation {moved.epoch}).")
    else:
        inform(
            f"{moved.slots} of {SLOTS} slots of [{subscription}] have moved (generation {moved.epoch}). Nobody"
            f" delivered them for {moved.held_s:.1f} s."
        )
    if moved.lent or moved.lacking:
        inform(
            f"At most {moved.lent:,} messages may be delivered twice, and {moved.lacking:,} come after newer ones of"
            " their keys."
        )
    inform(_summary(newest))


def _summary(slots: Slots) -> str:
    counts: dict[str, int] = {}
    for one in slots:
        counts[one.home or "every site"] = counts.get(one.home or "every site", 0) + 1
    return "; ".join(f"{name}: {count} slots" for name, count in sorted(counts.items()))


def _shown(known: KnownKeys, slot: int | None) -> list[dict[str, str | int]]:
    found: list[dict[str, str | int]] = []
    for first, last, at in ranges_of(known.newest):
        if slot is not None and not first <= slot <= last:
            continue
        uninformed = sorted(
            name for name, slots in known.at.items() if any(one != at for one in slots[first : last + 1])
        )
        state = "held: a move runs, or broke off" if at.moving else "delivered" if at.home else "delivered by all"
        if at.taken_from:
            state += f"; taken from {at.taken_from}, which may not know"
        if uninformed:
            state += f"; not known yet at {', '.join(uninformed)}"
        site = "nobody" if at.moving else at.home or "every site"
        place = f"{first}-{last}" if slot is None else str(slot)
        found.append({"slots": place, "site": site, "generation": at.epoch, "state": state})
    return found


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    try:
        found = range(int(first), int(last or first) + 1)
    except ValueError:
        found = range(0)
    if not found or found[0] < 0 or found[-1] >= SLOTS:
        raise Problem(f"--slots: {text!r} is not FIRST-LAST.", f"Slots are numbered from 0 to {SLOTS - 1}.")
    return found


def _weight(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        weight = float(value)
    except ValueError:
        weight = -1.0
    if not name or not 0 <= weight < 1e6:
        raise Problem(f"--weight: {text!r} is not SITE=WEIGHT.", "A weight is a number from 0 to 1000000.")
    return name, weight


@contextmanager
def _sites(file: Path, subscription: str) -> Iterator[KeySites]:
    from syncpoint.programs.federation.owned_keys.key_sites import KeySites
    from syncpoint.programs.federation.servers import Servers

    _, links = load_file(file)
    if not any(link.acks for link in links):
        raise Problem(
            f"No task in {file} exchanges acknowledgements.", "Set `acks: true` in a namespace or a `replicate` task."
        )
    with Servers() as servers:
        yield KeySites(links, servers, subscription)


@contextmanager
def _as_problems() -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        raise Problem(
            error.message, "Set `acks: true` for these sites, and create the subscription at all of them."
        ) from error
    except FailedPrecondition as error:
        raise Problem(error.message, exit_code=EXIT_CODES.get(error.code, 1)) from error
    except SyncpointError as error:
        raise Problem(str(error), "Run the command again: it goes on where it was.") from error

"""AckExchange.SetHome: which of several sites delivers a subscription, or some of its ordering keys.

Place: a method of the control plane, as Seek is. The other sites hold their consumers: these stay attached and are
delivered nothing, or nothing of the keys that others have, so that official clients need not know.
Promise: a decision with a lower epoch than that of the newest one changes nothing (about a whole subscription it is
refused); once it is answered, nothing more is lent where another site is the home.
"""

from __future__ import annotations

from dataclasses import replace

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, NotFound
from syncpoint.base.model.key_homes import BY_KEY, NOWHERE, SLOTS, SlotHome, Slots, later, slots_of
from syncpoint.base.model.names import parse_subscription
from syncpoint.catalog.metadata.home_sites import (
    HomeSite,
    fill_ranges,
    home_of,
    home_of_slots,
    put_home,
    ranges_in,
)
from syncpoint.catalog.metadata.records import CatalogChange, Subscription
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api.catalog_retries import checked_again
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods

NAME_MAX = 255
EPOCH_MAX = 1 << 62  # what moves it has room for higher ones


def home_methods(control: ControlPlane) -> Methods:
    """The method table."""

    async def set_home(asked: pipeline.SetHomeRequest) -> pipeline.SetHomeResponse:
        _check(asked)
        record = control.catalog.subscription(parse_subscription(asked.subscription))
        if record is None:
            raise NotFound(asked.subscription)
        known = home_of(control.catalog, record.incarnation)
        slots = NOWHERE if known is None else known.slots
        wanted = home_of_slots(asked.site, _wanted(asked, record, slots))
        if known is not None and (known.site, known.slots) == (wanted.site, wanted.slots):
            await control.confirm(record)
            return _answer(known)
        was_held = known is not None and known.elsewhere
        suspended = known.suspended if known is not None and was_held else record.options.receive_suspended
        wanted = wanted._replace(suspended=suspended)
        held = b"" if wanted.elsewhere or not wanted.mask else wanted.mask.to_bytes(SLOTS // 8, "little")
        options = record.options._replace(receive_suspended=wanted.elsewhere or suspended, keys_elsewhere=held)
        changes = put_home(control.catalog, record.incarnation, wanted)
        await control.commit([*changes, CatalogChange.put(replace(record, options=options))])
        return _answer(wanted)

    return served({methods.ACK_EXCHANGE.SetHome: checked_again(control, set_home)}, fair=True)


def _check(asked: pipeline.SetHomeRequest) -> None:
    if not 0 < len(asked.site) <= NAME_MAX:
        raise InvalidArgument("site", f"must be the name of a site, of at most {NAME_MAX} characters")
    if not asked.keys:
        _check_home("", asked.home, asked.epoch)
    elif asked.home or asked.epoch:
        raise InvalidArgument("keys", "must not come with `home` or `epoch`, which are for all keys")
    if len(asked.keys) > SLOTS:
        raise InvalidArgument("keys", f"must be at most {SLOTS} ranges: there are no more slots")
    for place, one in enumerate(asked.keys):
        if not one.first <= one.last < SLOTS:
            raise InvalidArgument(f"keys[{place}].last", f"must be from keys[{place}].first to {SLOTS - 1}")
        if one.home or one.epoch or one.taken_from:  # else nothing is decided about these
            _check_home(f"keys[{place}].", one.home, one.epoch)
        if len(one.taken_from) > NAME_MAX:
            raise InvalidArgument(f"keys[{place}].taken_from", f"must have at most {NAME_MAX} characters")


def _check_home(place: str, home: str, epoch: int) -> None:
    if not 0 < len(home) <= NAME_MAX:
        raise InvalidArgument(f"{place}home", f"must be the name of a site, of at most {NAME_MAX} characters")
    if home == BY_KEY:
        raise InvalidArgument(f"{place}home", f"must not be {BY_KEY!r}: name the homes of keys in `keys`")
    if not 1 <= epoch <= EPOCH_MAX:
        raise InvalidArgument(f"{place}epoch", f"must be from 1 to {EPOCH_MAX}")


def _wanted(asked: pipeline.SetHomeRequest, record: Subscription, known: Slots) -> Slots:
    """What the slots come to. Raises `FailedPrecondition`."""
    if not asked.keys:
        wanted = SlotHome(asked.epoch, asked.home)
        newest = max(known)
        if newest > wanted:
            raise FailedPrecondition(
                f"{record.name} is at home at {newest.home} since epoch {newest.epoch}, which is not before epoch"
                f" {wanted.epoch}. Ask for its home, and move it with a higher epoch."
            )
        return [wanted] * SLOTS
    slots = slots_of(ranges_in(asked.keys))
    for slot, (before, after) in enumerate(zip(known, slots, strict=True)):
        if asked.instead_of and after.epoch and before != after and before.home != asked.instead_of:
            raise FailedPrecondition(
                f"Keys of slot {slot} of {record.name} are at home at {before.home or 'every site'} since epoch"
                f" {before.epoch}: somebody else has moved them. See `syncpoint federation keys`."
            )
    return later(known, slots)


def _answer(one: HomeSite) -> pipeline.SetHomeResponse:
    answer = pipeline.SetHomeResponse(home=one.home, epoch=one.epoch)
    fill_ranges(answer.keys, one.keys)
    return answer


def check_at_home(control: ControlPlane, subscription: int) -> None:
    """Raises `FailedPrecondition`, naming the home, when another site delivers the subscription."""
    known = home_of(control.catalog, subscription)
    if known is not None and known.elsewhere:
        raise FailedPrecondition(
            f"The subscription is at home at {known.home} (epoch {known.epoch}), which delivers it. Move it with"
            " `syncpoint federation home`."
        )

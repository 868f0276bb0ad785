"""AckExchange.SetHome: which of several sites delivers a subscription.

Place: a method of the control plane, as Seek is. The other sites hold their consumers: these stay attached and are
delivered nothing, so that official clients need not know.
Promise: a decision with a lower epoch than that of the newest one changes nothing and is refused; once it is answered,
nothing more is lent where another site is the home.
"""

from __future__ import annotations

from dataclasses import replace

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, NotFound
from syncpoint.base.model.names import parse_subscription
from syncpoint.catalog.metadata.home_sites import HomeSite, home_of, put_home
from syncpoint.catalog.metadata.records import CatalogChange
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api.catalog_retries import checked_again
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pipeline
from syncpoint.wire.protobuf.serving import served
from syncpoint.wire.transport.calls import Methods

NAME_MAX = 255


def home_methods(control: ControlPlane) -> Methods:
    """The method table."""

    async def set_home(asked: pipeline.SetHomeRequest) -> pipeline.SetHomeResponse:
        for field in ("site", "home"):
            if not 0 < len(getattr(asked, field)) <= NAME_MAX:
                raise InvalidArgument(field, f"must be the name of a site, of at most {NAME_MAX} characters")
        if asked.epoch < 1:
            raise InvalidArgument("epoch", "must be at least 1")
        record = control.catalog.subscription(parse_subscription(asked.subscription))
        if record is None:
            raise NotFound(asked.subscription)
        known = home_of(control.catalog, record.incarnation)
        wanted = HomeSite(asked.site, asked.home, asked.epoch)
        if known is not None:
            if (known.epoch, known.home) > (wanted.epoch, wanted.home):
                raise FailedPrecondition(
                    f"{record.name} is at home at {known.home} since epoch {known.epoch}, which is not before epoch"
                    f" {wanted.epoch}. Ask for its home, and move it with a higher epoch."
                )
            if known[:3] == wanted[:3]:
                await control.confirm(record)
                return pipeline.SetHomeResponse(home=known.home, epoch=known.epoch)
        was_held = known is not None and known.elsewhere
        suspended = known.suspended if known is not None and was_held else record.options.receive_suspended
        wanted = wanted._replace(suspended=suspended)
        options = record.options._replace(receive_suspended=wanted.elsewhere or suspended)
        changes = put_home(control.catalog, record.incarnation, wanted)
        await control.commit([*changes, CatalogChange.put(replace(record, options=options))])
        return pipeline.SetHomeResponse(home=wanted.home, epoch=wanted.epoch)

    return served({methods.ACK_EXCHANGE.SetHome: checked_again(control, set_home)}, fair=True)


def check_at_home(control: ControlPlane, subscription: int) -> None:
    """Raises `FailedPrecondition`, naming the home, when another site delivers the subscription."""
    known = home_of(control.catalog, subscription)
    if known is not None and known.elsewhere:
        raise FailedPrecondition(
            f"The subscription is at home at {known.home} (epoch {known.epoch}), which delivers it. Move it with"
            " `syncpoint federation home`."
        )

"""Bugs planted into the gateway; see `planted_bugs`. Each is noticed in the simulation of `gateway_runs`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from syncpoint.base.model import reserved
from syncpoint.front.gateway import site_fill
from syncpoint.front.gateway.dual_identities import AckBook
from syncpoint.front.gateway.dual_publish import Doubts, DualPublish
from syncpoint.front.gateway.home_proof import HomeProof
from syncpoint.front.gateway.site_fill import FillStream, SiteFill
from syncpoint.front.gateway.unary_calls import UnaryCalls
from syncpoint.testing.simulation.gateway_runs import run_gateways
from syncpoint.testing.simulation.planted import planted
from syncpoint.testing.simulation.scaled import patched


@planted("strict", "hung", "killed", seed=0, run=run_gateways)
def one_of_two_sites_is_enough() -> AbstractContextManager[None]:
    """A publish that is to be stored at both sites is answered once one has it."""
    return patched(DualPublish, _enough=lambda self: bool(self.stored))


@planted("degrade", "killed", seed=0, run=run_gateways)
def acknowledgements_go_to_the_home() -> AbstractContextManager[None]:
    """Whichever site lent a message, the acknowledgement goes to the home."""
    right = UnaryCalls._to_holder

    async def to_home(self: UnaryCalls, call: Any, link: Any, *rest: Any) -> bytes:
        return await right(self, call, self.links[self.board.home], *rest)

    return patched(UnaryCalls, _to_holder=to_home)


@planted("degrade", "killed", "hung", seed=2, run=run_gateways)
def copies_need_no_confirmation() -> AbstractContextManager[None]:
    """A copy counts as acknowledged at its site once that was tried; what comes again passes for a seek."""
    right = AckBook.answered

    def answered(self: AckBook, tag: str, ack_ids: Iterable[str], *, confirmed: bool) -> None:
        right(self, tag, ack_ids, confirmed=True)

    return patched(AckBook, answered=answered)


@planted("strict", "hung", "killed", seed=0, run=run_gateways)
def publishes_in_doubt_are_new_ones() -> AbstractContextManager[None]:
    """A publisher that tries again gets other identities than before."""
    return patched(Doubts, take=lambda self, name: [])


@planted("degrade", "hung", seed=4, run=run_gateways)
def copies_have_identities_of_their_own() -> AbstractContextManager[None]:
    """What is brought to a site that lacks it is not known there by what it was called before."""
    return patched(site_fill, IDENTITY="sys.OtherId")


@planted("degrade", "killed", seed=0, run=run_gateways)
def what_is_copied_is_acknowledged_first() -> AbstractContextManager[None]:
    """A site is taken to have what it was never sent."""

    async def nothing(self: FillStream, lacking: Sequence[Any]) -> Sequence[Any]:
        return lacking

    return patched(FillStream, _publish=nothing)


@planted("degrade", "empty", seed=1, run=run_gateways)
def a_site_comes_back_as_it_was() -> AbstractContextManager[None]:
    """A site is not compared again after it was away."""
    return patched(SiteFill, left=lambda self, site: None)


@planted("degrade", "killed", "hung", seed=0, run=run_gateways)
def letters_of_two_sites_are_two() -> AbstractContextManager[None]:
    """Sites call the letters that they make of one message by names of their own (rule 31)."""
    return patched(reserved, derive_identity=lambda attributes, *made: None)


@planted("degrade", "killed", "hung", seed=0, run=run_gateways)
def acknowledgements_are_forgotten_with_the_home() -> AbstractContextManager[None]:
    """What was acknowledged at the lost home is delivered by the next one."""
    return patched(AckBook, _left_out=lambda self, tag, ack_id, identity, published_s: False)


@planted("degrade", "killed", "hung", seed=0, run=run_gateways)
def copies_are_held_until_their_site_is_the_home() -> AbstractContextManager[None]:
    """What the home has done with, and the gateway saw no confirmation of, is never found out."""
    return patched(HomeProof, looked=lambda self, tag, state, letters: [])

"""Bugs planted into the exchange of acknowledgements between sites, and into keys that they own; see `planted_bugs`.
Each is noticed in the simulation of `site_runs`, or of `moving_keys`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from syncpoint.broker.pipeline import ack_exchange, ack_snapshots
from syncpoint.broker.pipeline.ack_exchange import AckExchange
from syncpoint.broker.subscribe.lease import LeaseManager
from syncpoint.broker.subscribe.ordering import KeyOrder
from syncpoint.catalog.metadata.home_sites import HomeSite
from syncpoint.programs.federation.acks import ack_pair
from syncpoint.programs.federation.acks.ack_rounds import AckRounds
from syncpoint.programs.federation.acks.copied_tail import CopiedTail
from syncpoint.programs.federation.owned_keys.key_sites import KeySites, KnownKeys
from syncpoint.testing.simulation.moving_keys import run_keys
from syncpoint.testing.simulation.planted import planted, together
from syncpoint.testing.simulation.scaled import patched
from syncpoint.testing.simulation.site_runs import DELETED, HOMED, KEPT, SNAPPED, run_sites


@planted(KEPT, seed=27, run=run_sites)
def acknowledgements_outlive_a_seek() -> AbstractContextManager[None]:
    """What was acknowledged before a seek counts after it (rule 28)."""
    return patched(ack_exchange, _check_generation=lambda record, named, generation: None)


@planted(DELETED, seed=0, run=run_sites)
def acknowledgements_wait_for_nobody() -> AbstractContextManager[None]:
    """An acknowledgement that comes before its message is forgotten (rule 29)."""
    return patched(AckExchange, _copied=lambda self, block: None)


@planted(KEPT, seed=0, run=run_sites)
def seeks_of_two_sites_are_equal() -> AbstractContextManager[None]:
    """Neither of two concurrent seeks is the later one (rule 30)."""

    def no_site(report: Any, site: str) -> tuple[int, str]:
        return report.stamp.number + report.generation - report.stamped_generation, "-"

    return patched(ack_pair, stamp_of=no_site)


@planted(DELETED, seed=2, run=run_sites)
def maps_go_with_their_messages() -> AbstractContextManager[None]:
    """What was acknowledged is known for as long as its messages are stored (rule 34)."""
    return together(
        patched(AckExchange, _block_leaves=lambda self, block: None),
        patched(AckExchange, _source_leaves=lambda self, source: None),
    )


@planted(SNAPPED, seed=20, run=run_sites)
def snapshots_wait_for_no_copies() -> AbstractContextManager[None]:
    """A copied snapshot is shown before all that was acknowledged in the original is copied (rule 30)."""
    return patched(ack_snapshots, _reached=lambda link, source: 1 << 60)


@planted(HOMED, seed=0, run=run_sites)
def every_site_is_the_home() -> AbstractContextManager[None]:
    """A site goes on delivering where another one is the home (rule 32)."""
    return patched(HomeSite, elsewhere=property(lambda self: False))


@planted(HOMED, seed=0, run=run_sites)
def a_home_needs_no_tail() -> AbstractContextManager[None]:
    """A site is the home before it has what the others took (rule 33)."""
    return patched(CopiedTail, left=lambda self, heads: 0)


@planted(HOMED, seed=1, run=run_sites)
def a_home_needs_no_acknowledgements() -> AbstractContextManager[None]:
    """A site is the home before it knows what was acknowledged elsewhere (rule 33)."""
    return patched(AckRounds, step=lambda self: 0)


@planted(None, seed=1, run=run_keys)
def keys_move_before_what_is_lent_is_back() -> AbstractContextManager[None]:
    """A site delivers a key while consumers of the one before still have messages of it."""
    return patched(KeySites, lent=lambda self, site: 0)


@planted(None, seed=7, run=run_keys)
def keys_move_before_acknowledgements_are_recorded() -> AbstractContextManager[None]:
    """What consumers of the site before have acknowledged is not waited for."""
    return patched(LeaseManager, unrecorded=lambda self: set())


@planted(None, seed=69, run=run_keys)
def what_waits_of_a_key_stays_when_it_leaves() -> AbstractContextManager[None]:
    """A key comes back, and what was passed by of it comes later than what had waited."""
    return patched(KeyOrder, let_go=lambda self, of_key, lent: {})


@planted(None, seed=0, run=run_keys)
def keys_move_while_it_is_found_out_what_came_twice() -> AbstractContextManager[None]:
    """A move exchanges acknowledgements with a site that keys were taken from."""
    return patched(KnownKeys, back=property(lambda self: []))

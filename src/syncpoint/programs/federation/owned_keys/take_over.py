"""Taking keys from a site that is lost: machine. When, and who gets them; only where the file allows it.

Place: under `key_watch`, which asks the sites and hands in what they answered.
Promise: a site loses its keys only after it has not answered for the whole time that the file gives, while at least one
other site did.
"""

from __future__ import annotations

from collections.abc import Mapping

from syncpoint.base.model.key_homes import SlotHome
from syncpoint.programs.federation.owned_keys.key_shares import balanced
from syncpoint.programs.federation.owned_keys.key_sites import KnownKeys


class TakeOver:
    """One subscription. `takeover_s`: how long a site may be silent."""

    def __init__(self, takeover_s: float, weights: Mapping[str, float]) -> None:
        self._takeover_s, self._weights = takeover_s, weights
        self._silent_since: dict[str, float] = {}

    def looked(self, known: KnownKeys, now: float) -> dict[str, dict[int, SlotHome]]:
        """What is decided after a look: by lost site, its slots and who has them from now on."""
        since = self._silent_since
        self._silent_since = {site: since.get(site, now) for site in known.silent}
        if not known.at:
            return {}
        decided: dict[str, dict[int, SlotHome]] = {}
        newest = list(known.newest)
        epoch = 1 + max(one.epoch for one in newest)
        weights = {site: self._weights.get(site, 1.0) for site in known.at}
        if not sum(weights.values()):
            weights = dict.fromkeys(known.at, 1.0)
        for site, began in self._silent_since.items():
            lost = [slot for slot, one in enumerate(newest) if one.home == site]
            if not lost or now - began < self._takeover_s:
                continue
            shares = balanced(newest, weights)
            names = sorted(weights, key=lambda one: -weights[one])
            for slot in lost:
                decided.setdefault(site, {})[slot] = SlotHome(epoch, shares.get(slot, names[0]), site)
            newest = [decided[site].get(slot, one) for slot, one in enumerate(newest)]
        return decided

"""What clients of a gateway were promised, and whether it was kept: the judge of `gateway_runs`.

`away`: a site was away for a while, around which keys have no order; `forgetful`: a gateway died, with what it knew of
acknowledgements and of publishes in doubt.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b

from syncpoint.testing.simulation.coverage import Coverage
from syncpoint.testing.simulation.imagined_site import ImaginedSite

UNDERWAY_S = 1.0


class GatewayLedger:
    """One life. Messages are named by their data."""

    def __init__(self, sites: Mapping[str, ImaginedSite], answer: str, note: Callable[[str], None]) -> None:
        self.sites, self.answer, self._note = sites, answer, note
        self.away = self.forgetful = False
        self.key_of: dict[str, str] = {}
        self.begun: dict[str, float] = {}
        self.stored: dict[str, None] = {}  # confirmed to publishers
        self.arrived: Counter[str] = Counter()
        self.acked: dict[str, float] = {}  # from when on they must not come again
        self.overdue: set[str] = set()  # their publisher did not wait for the answer: published again they are others
        self.gone: set[str] = set()  # with the disks of the only site that had them, or waits at the other one alone
        self.order: dict[str, list[str]] = defaultdict(list)
        self.violations: list[str] = []
        self.looked: Counter[str] = Counter()
        self._digest = blake2b(digest_size=8)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def counts(self) -> dict[str, int]:
        """For the report."""
        return {"published": len(self.stored), "delivered": self.arrived.total(), "acknowledged": len(self.acked)}

    # -- what happens -------------------------------------------------------------------------------------------------

    def publishing(self, data: Sequence[str], key: str, now: float) -> None:
        """A publisher begins."""
        for one in data:
            self.key_of[one], self.begun[one] = key, now

    def confirmed(self, data: Sequence[str], reached: Iterable[str]) -> None:
        """A publisher is answered. `reached`: sites that took calls all the time."""
        holders = [name for name in self.sites if not set(data) - self._at(name)]
        needed = {"strict": list(self.sites), "degrade": list(reached), "available": []}[self.answer]
        self.looked["what is answered is stored where the policy wants it"] += 1
        lacking = [name for name in needed if name not in holders and not self.sites[name].disks_lost_s]
        if lacking or (not holders and not any(site.disks_lost_s for site in self.sites.values())):
            self._broken("what is answered is stored where the policy wants it", f"{data} is at {holders}")
        self.stored |= dict.fromkeys(data)

    def received(self, data: str, now: float, coverage: Coverage) -> None:
        """A subscriber has a message."""
        self._digest.update(data.encode())
        if now > self.acked.get(data, now) and not self.forgetful and data not in self.overdue:
            self._broken("acknowledged stays acknowledged", f"{data} comes again")
        self.looked["acknowledged stays acknowledged"] += 1
        coverage.sometimes("a message comes again", self.arrived[data])
        if not self.arrived[data]:
            self.order[self.key_of[data]].append(data)
        self.arrived[data] += 1

    def acknowledged(self, data: str, now: float, *, exactly: bool) -> None:
        """An acknowledgement is confirmed. Unless `exactly` one that is on its way already may come."""
        self.acked.setdefault(data, now if exactly else now + UNDERWAY_S)

    def loses(self, site: ImaginedSite, subscription: str) -> None:
        """A site is about to lose its disks: what it has alone is gone, what waits is at the other one alone."""
        for other in self.sites.values():
            if other is not site:
                self.gone |= self._at(site.name) - self._at(other.name)
                self.gone |= set(self._waiting(other, subscription))

    def _waiting(self, site: ImaginedSite, subscription: str) -> list[str]:
        one = site.subscriptions.get(subscription)
        log = site.topics[one.record.topic].log if one is not None else []
        return [log[at].data.decode() for at in one.left] if one is not None else []

    def _letters(self, site: ImaginedSite, dead: str) -> list[str]:
        return [one.data.decode() for one in site.topics[dead].log] if dead in site.topics else []

    def _at(self, site: str) -> set[str]:
        return {one.data.decode() for topic in self.sites[site].topics.values() for one in topic.log}

    def _broken(self, promise: str, what: str) -> None:
        self._note(f"VIOLATION {promise}: {what}")
        self.violations.append(f"{promise}: {what}")

    # -- what is left -------------------------------------------------------------------------------------------------

    def owed(self) -> list[str]:
        """What was confirmed, and nobody has received."""
        return [one for one in self.stored if not self.arrived[one] and one not in self.gone]

    def apart(self, subscription: str, dead: str) -> list[str]:
        """What one site has and the other lacks, and what waits at a site though it was acknowledged."""
        letters = [set(self._letters(site, dead)) for site in self.sites.values()]
        lost = [max(site.disks_lost_s, default=0.0) for site in self.sites.values()]
        found = [
            f"{one} is not at {name}"
            for name in self.sites
            for one in self.stored
            if one not in self.gone and self.begun[one] > max(lost) and one not in self._at(name)
        ]
        if not max(lost):
            found += [f"the letter of {one} is at one site alone" for one in sorted(letters[0] ^ letters[1])]
        for name, site in self.sites.items():
            if subscription in site.subscriptions and not self.forgetful:
                left = set(self._waiting(site, subscription)) - self.gone
                found += [f"{one} waits at {name}" for one in sorted(left)]
        return found

    def judge(self, topic: str, dead: str) -> None:
        """The end."""
        for name, site in self.sites.items():
            self.looked["each site has each message once"] += 1
            stored = [one.data.decode() for one in site.topics[topic].log] if topic in site.topics else []
            often = Counter(stored)
            twice = [one for one, count in often.items() if count > 1 and one not in self.overdue]
            if twice and not self.forgetful:
                self._broken("each site has each message once", f"{name} has {twice[:5]} twice")
            self.looked["a message becomes one letter"] += 1
            letters = Counter(self._letters(site, dead))
            twice = [one for one, count in letters.items() if count > 1 and one not in self.overdue]
            if twice and not self.forgetful:
                self._broken("a message becomes one letter", f"{name} has those of {twice[:5]} twice")
            if not self.away and not self.forgetful:
                self._in_order(name, stored)
        if not self.away and not self.forgetful:
            for key, data in self.order.items():
                if key:
                    self._in_order("a subscriber", data)

    def _in_order(self, who: str, data: Sequence[str]) -> None:
        self.looked["order per key"] += 1
        newest: dict[str, tuple[int, ...]] = {}
        for one in data:
            key, place = self.key_of[one], tuple(map(int, one.split(".")[1:]))
            if key and place < newest.get(key, (-1,)):
                self._broken("order per key", f"{who} has {one} after {newest[key]}")
                return
            newest[key] = place

"""Which sites take calls, and which of them is the home: health with hysteresis, masks, and a budget of changes.

Place: the decisions of `gateway`, which probes the sites and reports here; times come in, nothing here waits.
Promise: a site that misses `failures` probes in a row is left at once where another one answers, and comes back only
after `successes` good ones in a row. The last site is never masked. What an operator masked stays masked until the
operator unmasks it. A site comes back by itself, or is masked by command, only while fewer than `changes` changes were
made within `within_s`: a network that flaps does not move clients to and fro.
Leaves to `gateway`: draining, and what is to be copied before a site may come back (`hold`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from syncpoint.base.model.errors import FailedPrecondition, NotFound

BY_HEALTH: Final = "health"
BY_COMMAND: Final = "command"


@dataclass(frozen=True, slots=True)
class HealthRules:
    """When a site is left, when it is taken back, and how often that may happen."""

    failures: int = 3
    successes: int = 6
    changes: int = 6
    within_s: float = 600.0


@dataclass(slots=True)
class SiteState:
    """One site. `masked`: by what, "" when it takes calls; `held`: why it may not come back yet."""

    name: str
    weight: int = 100
    region: str = ""
    masked: str = ""
    since: float = 0.0
    missed: int = 0
    answered: int = 0
    probes: int = 0
    last_error: str = ""
    holds: dict[str, str] = field(default_factory=dict)
    changes: int = 0

    @property
    def held(self) -> str:
        """Everything that keeps it from coming back; "" for nothing."""
        return "; ".join(why for why in self.holds.values() if why)

    @property
    def answers(self) -> bool:
        """Whether its newest probe was answered."""
        return self.missed == 0


class SiteBoard:
    """All sites. `region`: of the gateway; its sites come first. `on_change(name)`: a site was masked or is back."""

    def __init__(self, sites: Iterable[SiteState], rules: HealthRules, region: str = "") -> None:
        self.sites = {one.name: one for one in sites}
        self.rules = rules
        self._preference = sorted(
            self.sites.values(), key=lambda one: (bool(region) and one.region != region, -one.weight)
        )
        self._changed: deque[float] = deque()
        self.on_change: Callable[[str], None] = lambda name: None

    # -- asked ------------------------------------------------------------------------------------------------------

    def open_sites(self) -> list[str]:
        """Names of sites that take calls, the home first. Never empty."""
        return [one.name for one in self._preference if not one.masked]

    @property
    def home(self) -> str:
        """The site that calls go to."""
        return self.open_sites()[0]

    def is_open(self, name: str) -> bool:
        """Whether a site takes calls."""
        return not self.sites[name].masked

    def changes_left(self, now: float) -> int:
        """How many changes the budget still has."""
        while self._changed and self._changed[0] <= now - self.rules.within_s:
            self._changed.popleft()
        return max(0, self.rules.changes - len(self._changed))

    # -- what probes and calls found ----------------------------------------------------------------------------------

    def answered(self, name: str, now: float) -> None:
        """A probe was answered."""
        site = self.sites[name]
        site.probes += 1
        site.missed, site.last_error = 0, ""
        site.answered += 1
        self._review(now)

    def missed(self, name: str, error: str, now: float, *, refused: bool = False) -> None:
        """A probe was not answered in time; `refused`: nobody listens there, which needs no second probe."""
        site = self.sites[name]
        site.probes += 1
        site.answered, site.last_error = 0, error
        site.missed = max(site.missed + 1, self.rules.failures if refused else 0)
        self._review(now)

    def hold(self, name: str, why: str, by: str = "") -> None:
        """Keep a masked site from coming back by itself: it lacks something. "" when, `by` this, it lacks nothing."""
        self.sites[name].holds[by] = why

    def _review(self, now: float) -> None:
        rules = self.rules
        for site in self._preference:
            if site.masked != BY_HEALTH or not site.answers:
                continue
            alone = not any(one.answers for one in self._preference if not one.masked)
            well = site.answered >= rules.successes and not site.held and self.changes_left(now) > 0
            if alone or well:
                self._unmask(site, now)
        for site in self._preference:
            if not site.masked and site.missed >= rules.failures and self._another_answers(site):
                self._mask(site, BY_HEALTH, now)

    def _another_answers(self, site: SiteState) -> bool:
        return any(one.answers and not one.masked for one in self._preference if one is not site)

    # -- what operators say -------------------------------------------------------------------------------------------

    def mask(self, name: str, now: float, *, force: bool = False) -> None:
        """Take a site out by command. Raises for the last one, and `FailedPrecondition` beyond the budget."""
        site = self._site(name)
        if not site.masked:
            if not self._another_answers(site):
                raise FailedPrecondition(
                    f"{name} is the last site that takes calls and answers. Unmask another one first: `syncpoint"
                    " gateway status` shows them."
                )
            self._afford(now, force)
            self._mask(site, BY_COMMAND, now)
        site.masked = BY_COMMAND
        self._review(now)

    def unmask(self, name: str, now: float, *, force: bool = False) -> None:
        """Take a site back by command. Raises `FailedPrecondition` for one that does not answer or lacks something."""
        site = self._site(name)
        if not site.masked:
            return
        if not force and not site.answers:
            raise FailedPrecondition(
                f"{name} does not answer ({site.last_error or 'no answer'}). Repair it first; --force unmasks it as it"
                " is."
            )
        if not force and site.held:
            raise FailedPrecondition(f"{name} is not ready: {site.held}. Wait for it; --force unmasks it as it is.")
        self._afford(now, force)
        self._unmask(site, now)
        self._review(now)

    def _site(self, name: str) -> SiteState:
        found = self.sites.get(name)
        if found is None:
            raise NotFound(name, f"There is no site {name!r}; choose from {', '.join(sorted(self.sites))}.")
        return found

    def _afford(self, now: float, force: bool) -> None:
        if not force and not self.changes_left(now):
            raise FailedPrecondition(
                f"{self.rules.changes} changes of sites were made within {self.rules.within_s:g} s, which is all that"
                " the file allows (budget). Wait, or give --force."
            )

    # -- changing -----------------------------------------------------------------------------------------------------

    def _mask(self, site: SiteState, by: str, now: float) -> None:
        site.masked = by
        self._note(site, now)

    def _unmask(self, site: SiteState, now: float) -> None:
        site.masked = ""
        site.holds.clear()
        self._note(site, now)

    def _note(self, site: SiteState, now: float) -> None:
        site.since = now
        site.changes += 1
        self._changed.append(now)
        while len(self._changed) > 1_000:
            self._changed.popleft()
        self.on_change(site.name)

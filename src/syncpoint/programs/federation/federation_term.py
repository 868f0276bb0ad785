"""Which of several programs runs a federation: machine. Every cluster of the file keeps who holds it, for a while.

Place: under `shared_run`, which asks the clusters and hands in what they answered. A program that runs renews its term
everywhere; one that stands by looks, and takes a greater term once no cluster that answers knows of a holder whose time
is not up.
Promise: of programs that reach a common cluster one runs, after at most two rounds. Where they reach different ones
both may run; then each flow's target fences the earlier one, as always.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class TermAct(enum.Enum):
    """What to ask the clusters next."""

    LOOK = "look"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class TermAnswer:
    """What one cluster keeps. `left_s`: until others may take over."""

    holder: str
    term: int
    left_s: float


@dataclass(slots=True)
class FederationTerm:
    """One program's part. `name`: its own, different from all others. `running`: whether it runs the federation."""

    name: str
    running: bool = False
    term: int = 0
    holder: str = ""
    """Who runs it, as last heard; empty: nobody."""
    _asks: bool = field(default=False, repr=False)

    @property
    def act(self) -> TermAct:
        """What to ask all clusters in the next round; `term` goes along where it is to be held."""
        return TermAct.HOLD if self.running or self._asks else TermAct.LOOK

    def answered(self, answers: Mapping[str, TermAnswer]) -> None:
        """The answers of a round, by cluster; who did not answer is left out."""
        if self.act is TermAct.HOLD:
            self._held(answers)
        else:
            self._looked(answers)

    def _looked(self, answers: Mapping[str, TermAnswer]) -> None:
        others = [one for one in answers.values() if one.left_s > 0 and one.holder != self.name]
        self.holder = max(others, key=lambda one: one.term).holder if others else ""
        if answers and not others:
            self._asks = True
            self.term = 1 + max(one.term for one in answers.values())

    def _held(self, answers: Mapping[str, TermAnswer]) -> None:
        self._asks = False
        if not answers:
            return  # a program that reaches no cluster copies nothing, either; it learns later whether it still runs
        refusals = [one for one in answers.values() if (one.holder, one.term) != (self.name, self.term)]
        self.running = not refusals
        self.holder = self.name if self.running else max(refusals, key=lambda one: one.term).holder

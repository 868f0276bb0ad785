"""The driver: every prober at every endpoint, run after run, beside each other.

Place: the outermost part of the room, under `syncpoint probers run`.
Promise: a prober that fails, hangs or has a bug holds up no other one, and none ends the program: a run ends within its
time, and what it raises becomes its failure. Runs are spread over the interval, so that they do not all come at once.
When the program is asked to end, runs under way delete what they made.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from syncpoint.base.model.errors import SyncpointError
from syncpoint.programs.probers import leftovers
from syncpoint.programs.probers.judgement import ProbeVerdict, judge
from syncpoint.programs.probers.probe_history import ProbeHistory
from syncpoint.programs.probers.probe_names import ProbeNames
from syncpoint.programs.probers.probe_run import ProbedEndpoint, ProbeRun, ProbeScript, ProbeSurroundings, StepFailed
from syncpoint.programs.probers.prober_board import ProberBoard
from syncpoint.programs.probers.prober_table import ProberSpec
from syncpoint.programs.probers.service_scripts import SCRIPTS

DEADLINES_A_RUN: Final = 12  # a run is ended after this many times the deadline of a step
CLEAN_EVERY_S: Final = 600.0
IDS_KEPT: Final = 20_000

log = logging.getLogger(__name__)


class ProberDriver:
    """Run probers periodically.

    `on_change` is called after each run; `instance`: six hexadecimal digits that identify this program.
    """

    def __init__(
        self,
        probers: Sequence[ProberSpec],
        around: ProbeSurroundings,
        board: ProberBoard,
        *,
        on_change: Callable[[], None] = lambda: None,
        random: Random | None = None,
        instance: str = "",
    ) -> None:
        self._probers, self._around, self._board, self._on_change = probers, around, board, on_change
        self._random = random or Random()
        self._instance = instance or f"{self._random.getrandbits(24):06x}"
        self._number = 0
        self._ids: dict[str, deque[str]] = {}  # of P2, by endpoint: ids it was given
        longest = max((step.limit_s for one in probers for step in one.timed), default=0.0)
        self._run_s = around.deadline_s * DEADLINES_A_RUN + longest * around.patience

    async def once(self) -> None:
        """Run every prober at every endpoint once, all at the same time."""
        await self._clean()
        async with asyncio.TaskGroup() as group:
            for spec in self._probers:
                for endpoint in self._around.endpoints:
                    group.create_task(self.run(spec, endpoint))

    async def forever(self, interval_s: float) -> None:
        """Run each of them every `interval_s` until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._cleaning())
            for spec in self._probers:
                for endpoint in self._around.endpoints:
                    group.create_task(self._again_and_again(spec, endpoint, interval_s))

    async def _again_and_again(self, spec: ProberSpec, endpoint: ProbedEndpoint, interval_s: float) -> None:
        await asyncio.sleep(self._random.uniform(0.0, interval_s))
        while True:
            begun = asyncio.get_running_loop().time()
            await self.run(spec, endpoint)
            took = asyncio.get_running_loop().time() - begun
            await asyncio.sleep(max(interval_s - took, interval_s * self._random.uniform(0.1, 0.2)))

    async def run(self, spec: ProberSpec, endpoint: ProbedEndpoint) -> None:
        """One run, judged and noted on the board."""
        self._number += 1
        names = ProbeNames(
            self._around.project, spec.name, f"{self._instance}-{self._number}", time.time() + self._run_s
        )
        run = ProbeRun(spec, endpoint, self._around, names)
        try:
            await self._steps(SCRIPTS[spec.name], run)
        finally:
            await run.clean_up()
        history = run.history
        given = self._ids.setdefault(f"{spec.name} {endpoint.address}", deque(maxlen=IDS_KEPT))
        history.earlier_ids = frozenset(given)
        given.extend(one.id for one in history.sent if one.id)
        findings = judge(spec, history, self._around.patience)
        self._board.note(spec.name, endpoint.address, history, findings, time.time())
        for one in findings:
            if one.verdict is ProbeVerdict.UNEXPECTED:
                log.warning("%s at %s failed: %s", spec.metric(one.measure), endpoint.address, one.text)
        self._on_change()

    async def _steps(self, script: ProbeScript, run: ProbeRun) -> None:
        """Run the script, and note how it failed if it did."""
        history: ProbeHistory = run.history
        try:
            async with asyncio.timeout(self._run_s):
                await script(run)
        except StepFailed as error:
            history.failure = str(error)
        except TimeoutError:
            history.failure = f"the run took longer than {self._run_s:g} s"
        except SyncpointError as error:
            history.failure = str(error)
        except Exception as error:
            log.exception("%s at %s stopped because of a bug in the prober", run.spec.name, run.endpoint.address)
            history.failure = f"a bug in the prober: {error!r}"

    async def _cleaning(self) -> None:
        while True:
            await self._clean()
            await asyncio.sleep(CLEAN_EVERY_S)

    async def _clean(self) -> None:
        """Remove what dead probers left, by the first endpoint that answers, and where copies go."""
        places = [(one, self._around.project) for one in self._around.endpoints]
        for endpoint, project in places:
            if await self._cleaned(endpoint, project):
                break
        if self._around.copy is not None:
            await self._cleaned(self._around.copy, self._around.copy_project)

    async def _cleaned(self, endpoint: ProbedEndpoint, project: str) -> bool:
        try:
            self._board.leftovers_removed += await leftovers.remove(endpoint, project, time.time())
        except SyncpointError as error:
            log.warning("cannot delete leftovers of dead probers at %s: %s", endpoint.address, error)
            return False
        return True

"""Random histories over disks in memory: a link and a plain query write two topics while everything fails.

A driver for each does what Spark may do; the power goes at random writes, drivers restart, roll back and come back as
zombies, checkpoints are drawn and segments cleaned up in between. After every crash, and at the end, both topics hold
every confirmed row once, and no epoch in part.
"""

from __future__ import annotations

from typing import Any

import pytest

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.base.runtime.random import SeededRandom
from syncpoint.broker.pipeline import epoch_apply, staging
from syncpoint.wire.protobuf.messages import pipeline
from tests.kit.epochs import ONE, TWO, DieAt, Died, Harness, frame

LINK, PLAIN = 0, 1_000_000  # rows of the plain query have these numbers


class History:
    """`link`: next offset and epoch of the replicating driver; its plan of an epoch may change after a rollback."""

    def __init__(self, seed: int) -> None:
        self.draw = SeededRandom(seed)
        self.harness = Harness(seed, commit_bytes_max=1000, segment_bytes=128 * 1024)
        self.harness.subscribe(1, "one", 11)
        self.harness.subscribe(2, "two", 12)
        self.runs = 0
        self.end = 0  # of what could be replicated
        self.link_run, self.link_epoch, self.link_at = self.new_run(), 0, 0
        self.link_history = {0: 0}
        self.confirmed = 0
        self.plain_run, self.plain_epoch = self.new_run(), 0
        self.zombies: list[tuple[str, str]] = []

    def new_run(self) -> str:
        self.runs += 1
        return f"run {self.runs}"

    # -- what drivers do ---------------------------------------------------------------------------------------------

    def stage(self, query: str, run: str, epoch: int, rows: list[int], base: int, source: int) -> None:
        frames = []
        for topic, mine in ((ONE, [row for row in rows if row % 2]), (TWO, [row for row in rows if not row % 2])):
            columns: dict[str, Any] = {"data": [b"%d|" % (base + row) + b"." * 60 for row in mine]}
            if source:
                columns["offset"] = mine
            frames.append(frame(topic, source, **columns))
        header = pipeline.StageHeader(run=pipeline.Run(query=query, run=run), epoch=epoch, attempt="x")
        self.harness.run(self.harness.staging(header, frames))

    def commit(self, query: str, run: str, epoch: int, **link: Any) -> Any:
        request = pipeline.CommitEpochRequest(
            run=pipeline.Run(query=query, run=run), epoch=epoch, stages=[pipeline.StageName(attempt="x")], **link
        )
        return self.harness.call("CommitEpoch", request)

    def replicate(self) -> None:
        self.end += self.draw.randrange(0, 30)
        begin, end = self.link_at, self.end
        self.stage("link", self.link_run, self.link_epoch, [row for row in range(begin, end) if row % 5], LINK, 7)
        plan = [pipeline.SourceRange(source=7, begin=begin, end=end)]
        self.commit("link", self.link_run, self.link_epoch, link="l", source_topic="u/t-1", planned=plan)
        self.confirmed = max(self.confirmed, end)
        self.link_epoch += 1
        self.link_at = self.link_history[self.link_epoch] = end

    def write(self) -> None:
        rows = list(range(20 * self.plain_epoch, 20 * self.plain_epoch + 20))
        self.stage("plain", self.plain_run, self.plain_epoch, rows, PLAIN, 0)
        self.commit("plain", self.plain_run, self.plain_epoch)
        self.plain_epoch += 1

    def restart_drivers(self) -> None:
        self.zombies = [("link", self.link_run), ("plain", self.plain_run)]
        self.link_run, self.plain_run = self.new_run(), self.new_run()

    def roll_back(self) -> None:
        self.restart_drivers()
        self.link_epoch = self.draw.randrange(0, self.link_epoch + 1)
        self.link_at = self.link_history[self.link_epoch]

    def zombie(self) -> None:
        """A run that was learned of, and whose successor was, is refused."""
        for query, run in self.zombies:
            known = self.harness.writer.state.queries.get(query)
            latest = self.link_run if query == "link" else self.plain_run
            if known is None or known.run != latest or not known.knows(run):
                continue
            with pytest.raises(SyncpointError) as refused:
                self.stage(query, run, 0, [1], PLAIN, 0)
            assert refused.value.code is Code.ABORTED

    # -- what happens to the server ----------------------------------------------------------------------------------

    def step(self) -> None:
        dice = self.draw.randrange(0, 100)
        if dice < 35:
            self.replicate()
        elif dice < 60:
            self.write()
        elif dice < 66:
            self.restart_drivers()
        elif dice < 72:
            self.roll_back()
        elif dice < 78:
            self.zombie()
        elif dice < 84:
            self.harness.checkpoint()
        elif dice < 90:
            self.harness.collect(4)
        else:
            self.harness.files.faults.append(DieAt(self.draw.randrange(0, 40)))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            try:
                self.step()
            except Died:
                self.reopen()
        self.harness.files.faults.clear()
        self.reopen()
        self.replicate()
        self.write()
        self.judge()

    def reopen(self) -> None:
        while True:
            self.harness.crash(power=bool(self.draw.randrange(0, 2)))
            if self.draw.randrange(0, 3) == 0:
                self.harness.files.faults.append(DieAt(self.draw.randrange(0, 60)))
            try:
                self.harness.open()
            except Died:
                continue
            self.harness.files.faults.clear()
            self.judge()
            return

    def judge(self) -> None:
        link = self.harness.writer.state.links.get("l")
        committed = link.intervals[7].end if link is not None else 0
        assert committed >= self.confirmed
        query = self.harness.writer.state.queries.get("plain")
        epochs = query.committed_end if query is not None else 0
        assert epochs in (self.plain_epoch, self.plain_epoch + 1)
        for topic, odd in ((1, 1), (2, 0)):
            stored = [int(data.split(b"|")[0]) for data in self.harness.data(topic)]
            copied = [row for row in stored if row < PLAIN]
            assert copied == [row for row in range(committed) if row % 5 and row % 2 == odd]
            plain = [row - PLAIN for row in stored if row >= PLAIN]
            assert plain == [row for row in range(20 * epochs) if row % 2 == odd]
        found = self.harness.writer.state.copies.find("l", 7, 0, 1 << 40, 1 << 30)
        assert sum(one.count for one in found) == sum(1 for row in range(committed) if row % 5)


@pytest.mark.parametrize("seed", range(8))
def test_random_histories(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "PIECE_BYTES", 300)
    monkeypatch.setattr(epoch_apply, "TURN_BYTES", 700)
    monkeypatch.setattr(epoch_apply, "UNPERSISTED_BYTES_MAX", 1500)
    history = History(seed)
    try:
        history.run(40)
    finally:
        history.harness.close()

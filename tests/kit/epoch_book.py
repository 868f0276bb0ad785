"""A little server around the machine of epochs: one log of facts and messages, crashes that cut off its end."""

from __future__ import annotations

from syncpoint.broker.pipeline import offset_runs
from syncpoint.broker.pipeline.epoch_commits import CommitRequest, Decided, GapRefused, Repeated, work_of
from syncpoint.broker.pipeline.epochs import EpochState
from syncpoint.broker.pipeline.links import PlannedRange
from syncpoint.broker.pipeline.records import EpochDecision, EpochPlace, Piece, QueryRun, Stage

TOPIC = 7
NAME = "projects/p/topics/t"


def encoded(offsets: list[int]) -> bytes:
    return offset_runs.encode((offset, 1) for offset in offsets) if len(offsets) < 3 else as_runs(offsets)


def as_runs(offsets: list[int]) -> bytes:
    pairs: list[list[int]] = []
    for offset in offsets:
        if pairs and sum(pairs[-1]) == offset:
            pairs[-1][1] += 1
        else:
            pairs.append([offset, 1])
    return offset_runs.encode((begin, length) for begin, length in pairs)


class Log:
    """Entries are facts, or (source, first offset, rows)."""

    def __init__(self) -> None:
        self.entries: list[bytes | tuple[int, int, tuple[int, ...]]] = []
        self.persisted = 0

    def persist(self) -> None:
        self.persisted = len(self.entries)


class Server:
    """Rows are numbers, offsets of the link's source or any others. `steps`: what may be cut by a crash."""

    def __init__(self, log: Log | None = None, life: int = 1) -> None:
        self.log, self.life, self.now = log or Log(), life, 0
        self.state = EpochState()
        self.rows: dict[int, tuple[int, ...]] = {}  # staging offset -> rows; in the staging source of this life
        self.ends: dict[int, int] = {}
        self.staged: dict[tuple[int, int], tuple[int, ...]] = {}

    @property
    def target(self) -> int:
        return self.life << 24

    def visible(self) -> list[int]:
        """Rows of the topic, in the order of sources and offsets."""
        entries = [entry for entry in self.log.entries if isinstance(entry, tuple) and entry[0] % 2 == 0]
        return [row for entry in sorted(entries, key=lambda one: (one[0], one[1])) for row in entry[2]]

    def stage(
        self, run: QueryRun, epoch: int, partition: int, attempt: str, rows: list[int], source: int = 0, size: int = 4
    ) -> Stage:
        """Stage rows, in pieces of `size`."""
        self.write(self.state.on_run(run, self.now).facts)
        pieces = []
        staging = self.target + 1
        for at in range(0, len(rows), size):
            cut = rows[at : at + size]
            first = self.ends.get(staging, 0)
            self.ends[staging] = first + len(cut)
            self.log.entries.append((staging, first, tuple(cut)))
            pieces.append(Piece(TOPIC, first, len(cut), 10 * len(cut), source, encoded(cut) if source else b""))
        made = Stage(
            self.state.new_id(), run.query, run.run, epoch, partition, attempt, self.now, staging, {TOPIC: NAME},
            tuple(pieces),
        )  # fmt: skip
        self.write(self.state.stage(made).facts)
        self.log.persist()
        return made

    def write(self, facts: list[bytes]) -> None:
        self.log.entries += facts

    def commit(self, ask: CommitRequest, exists: bool = True) -> Decided | Repeated | GapRefused:
        """Decide, apply and finish; nothing is persisted yet."""
        self.write(self.state.on_run(ask.run, self.now).facts)
        outcome = self.state.decide(ask, self.now, lambda incarnation: exists)
        self.write(outcome.facts)
        if isinstance(outcome, Decided):
            self.finish(outcome.decision)
        return outcome

    def finish(self, decision: EpochDecision) -> None:
        """Apply what is not applied yet, one piece after the other."""
        messages = {entry[:2]: entry[2] for entry in self.log.entries if isinstance(entry, tuple)}
        for work in work_of(decision):
            if work.number in decision.places:
                continue
            rows = messages[work.stage.staging, work.piece.first_offset][work.skip :]
            first = self.ends.get(self.target, 0)
            place = EpochPlace(self.target, first, len(rows))
            self.log.entries.append(self.state.applied(decision, work.number, [place]))
            if rows:
                self.log.entries.append((self.target, first, rows))
                self.ends[self.target] = first + len(rows)
        self.log.entries.append(self.state.done(decision, b"%d" % decision.id))

    def crashed(self, keep: int, checkpoint: int | None = None) -> Server:
        """The server after a crash that kept `keep` entries; as if facts up to `checkpoint` came from one."""
        log = Log()
        log.entries = self.log.entries[:keep]
        log.persist()
        again = Server(log, self.life + 1)
        facts = [entry for entry in log.entries if isinstance(entry, bytes)]
        if checkpoint is not None:
            before = EpochState()
            for fact in facts[:checkpoint]:
                before.apply(fact)
            facts = [*before.facts(), *facts[checkpoint // 2 :]]
        for fact in facts:
            again.state.apply(fact)
        again.now = self.now
        ends: dict[int, int] = {}
        for entry in log.entries:
            if isinstance(entry, tuple):
                ends[entry[0]] = max(ends.get(entry[0], 0), entry[1] + len(entry[2]))
        for decision in list(again.state.decisions.values()):
            again.state.keep_found(decision, lambda source: ends.get(source, 0))
            again.finish(decision)
        log.persist()
        return again


def ask(
    run: QueryRun, epoch: int, *stages: Stage, planned: tuple[PlannedRange, ...] = (), link: str = "", **more: object
) -> CommitRequest:
    names = [stage.name for stage in stages]
    return CommitRequest(run, epoch, names, link, "u/t-1" if link else "", planned, **more)  # type: ignore[arg-type]

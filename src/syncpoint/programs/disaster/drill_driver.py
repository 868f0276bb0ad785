"""A drill: guards asked, messages of its own under way, one failure made, undone, and what clients saw certified.

Place: `syncpoint drill start`. Order: journal, watcher, prober, failure; whatever ends it, everything is undone.
Promise: it is refused while messages are at risk or an alert pages, and stopped when one begins to; it ends by its time
limit. Where this program dies, the watcher (`drill_journal`) undoes what it had done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from syncpoint.base.model.errors import Code, FailedPrecondition, SyncpointError
from syncpoint.front.client.client import Client
from syncpoint.programs.disaster.drill_failures import make_failure, undo
from syncpoint.programs.disaster.drill_journal import RETRY_S, TRIES, DrillJournal, watch
from syncpoint.programs.disaster.drill_plan import DrillPlan
from syncpoint.programs.disaster.outside_prober import MARK, PACE_S, OutsideProber
from syncpoint.wire.protobuf.messages import admin, pubsub

WARM_S: Final = 2.0
LOOK_S: Final = 1.0
ASK_S: Final = 3.0
"""A question to a server that fails on purpose takes no longer."""
LAST_MESSAGES_S: Final = 15.0
WELL_S: Final = 1.0
"""Both clients must have gone on again for this time."""
ROLLBACK_S: Final = 60.0
"""Beyond the limit, by which everything is undone."""
_SILENT = (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)


def at_risk(client: Client) -> list[str]:
    """Why no drill may run now, in words. Raises `SyncpointError`."""
    found = []
    for one in client.call("Admin.GetAtRisk", admin.GetAtRiskRequest(), timeout_s=ASK_S).failures:
        if one.kind != admin.Failure.DISK and one.lost.messages:
            kind = admin.Failure.Kind.Name(one.kind).lower()
            found.append(f"the loss of the {kind} {one.name} would lose {one.lost.messages:,} messages")
    try:
        alerts = client.call("Admin.ListAlerts", admin.ListAlertsRequest(), timeout_s=ASK_S).alerts
    except SyncpointError as error:
        if error.code in (Code.FAILED_PRECONDITION, Code.UNIMPLEMENTED):
            return found  # nothing is watched here
        raise
    for one in alerts:
        if one.severity == admin.Alert.PAGE and one.state != admin.Alert.RESOLVED:
            found.append(f"{one.rule}: {one.summary}")
    return found


@dataclass(slots=True)
class DrillRun:
    """One run. `connect`: a new connection to the server; `show`: shows a step."""

    drill: str
    project: str
    plan: DrillPlan
    connect: Callable[[], Client]
    folder: Path
    show: Callable[[str], None] = lambda text: None
    not_copied: Callable[[], int] = lambda: -1
    reason: str = ""

    @property
    def _name(self) -> str:
        return f"drill-{self.drill}"

    def run(self) -> admin.Drill:
        """Do all of it; the record with the certificate. Raises `FailedPrecondition` where the guards refuse."""
        journal = DrillJournal(self.folder / f"{self.drill}.journal")
        if journal.left():
            raise FailedPrecondition(
                f"{journal.path} still has steps to roll back: the drill {self.drill} is running, or could not be"
                " rolled back. Give this one another id."
            )
        end_watcher = watch(journal, self.plan.limit_s, self._undo)
        try:
            return self._guarded(journal)
        finally:
            end_watcher()

    def _guarded(self, journal: DrillJournal) -> admin.Drill:
        with self.connect() as client:
            if reasons := at_risk(client):
                raise FailedPrecondition(f"No drill now: {'; '.join(reasons)}.")
            record = admin.Drill(
                project=self.project, drill=self.drill, kind=self.plan.kind, target=self.plan.shown,
                state=admin.Drill.RUNNING,
            )  # fmt: skip
            record.deadline.FromNanoseconds(time.time_ns() + int((self.plan.limit_s + ROLLBACK_S) * 1e9))
            client.call("Admin.RecordDrill", admin.RecordDrillRequest(drill=record))
            journal.note("record", project=self.project, drill=self.drill)
            began = time.monotonic()
            certificate: Mapping[str, int] = {}
            try:
                certificate = self._measured(client, journal, began)
            except SyncpointError as error:
                self.reason = self.reason or str(error)
            except KeyboardInterrupt:
                self.reason = "interrupted"
            finally:
                failed = journal.roll_back(self._undo, without=("record",))
            if failed:
                self.reason = f"not rolled back: {'; '.join(failed)}"[:1000]
            record.state = admin.Drill.ABORTED if self.reason else admin.Drill.DONE
            record.reason = self.reason[:1000]
            if certificate:
                record.certificate.CopyFrom(admin.DrillCertificate(**certificate))
            return self._kept(client, record)

    def _kept(self, client: Client, record: admin.Drill) -> admin.Drill:
        """The record as the server keeps it; as it is here, where the server does not answer any more."""
        for _ in range(TRIES):
            try:
                found: admin.Drill = client.call("Admin.RecordDrill", admin.RecordDrillRequest(drill=record))
            except SyncpointError as error:
                if error.code not in _SILENT:
                    raise
                time.sleep(RETRY_S)
                continue
            return found
        self.show("the server does not answer, so it does not keep the certificate")
        record.end_time.FromNanoseconds(time.time_ns())
        return record

    def _measured(self, client: Client, journal: DrillJournal, began: float) -> Mapping[str, int]:
        topic, subscription = self._made(client, journal)
        prober = OutsideProber(self.connect, topic, subscription, self.drill)
        prober.start()
        try:
            self._wait(client, WARM_S, began)
            if not prober.confirmed or not prober.received:
                raise FailedPrecondition("The drill's own messages do not go through, before anything failed.")
            not_copied = self.not_copied()
            prober.restart()
            self.show(f"{self.plan.kind}: {self.plan.shown}")
            make_failure(self.plan, journal)
            self._wait(client, self.plan.lasts_s, began)
            self.show("rolling back")
            undone = [one for one in journal.left() if one["what"] not in ("topic", "subscription", "record")]
            for entry in undone:
                self._undo(entry)
                journal.note("undone", number=entry["number"])
            back = time.monotonic()
            while not prober.well(back + WELL_S):
                if time.monotonic() > began + self.plan.limit_s:
                    self.reason = self.reason or "clients did not go on after the rollback, within its limit"
                    break
                time.sleep(PACE_S)
        finally:
            prober.finish(LAST_MESSAGES_S)
        return prober.certificate(not_copied)

    def _wait(self, client: Client, seconds: float, began: float) -> None:
        """Let it go on for this time; shorter where it has to stop."""
        end = time.monotonic() + seconds
        while not self.reason and (left := end - time.monotonic()) > 0:
            if time.monotonic() > began + self.plan.limit_s:
                self.reason = f"its limit of {self.plan.limit_s:g} s was over"
                return
            time.sleep(min(left, LOOK_S))
            self._look(client)

    def _look(self, client: Client) -> None:
        """Ask whether it may go on; who does not answer may be what fails."""
        asked = admin.GetDrillRequest(project=self.project, drill=self.drill)
        try:
            if client.call("Admin.GetDrill", asked, timeout_s=LOOK_S).abort:
                self.reason = "aborted"
            elif reasons := at_risk(client):
                self.reason = "; ".join(reasons).rstrip(".")
        except SyncpointError as error:
            if error.code not in _SILENT:
                raise

    def _made(self, client: Client, journal: DrillJournal) -> tuple[str, str]:
        """The topic, and a subscription of the drill's own."""
        topic = self.plan.topic or f"{self.project}/topics/{self._name}"
        subscription = f"{self.project}/subscriptions/{self._name}"
        if not self.plan.topic:
            self._create(client, journal, "topic", "Publisher.CreateTopic", pubsub.Topic(name=topic))
        made = pubsub.Subscription(
            name=subscription, topic=topic, ack_deadline_seconds=60, filter=f'attributes.{MARK} = "{self.drill}"'
        )
        self._create(client, journal, "subscription", "Subscriber.CreateSubscription", made)
        return topic, subscription

    @staticmethod
    def _create(client: Client, journal: DrillJournal, what: str, method: str, made: Any) -> None:
        """Create what is deleted in the end, unless it was there before."""
        journal.note(what, name=made.name)
        try:
            client.call(method, made)
        except SyncpointError as error:
            if error.code is Code.ALREADY_EXISTS:
                journal.note("undone", number=journal.left()[0]["number"])
            raise

    def _undo(self, entry: Mapping[str, Any]) -> None:
        with self.connect() as client:
            undo(
                entry, lambda method, request: client.call(method, request, timeout_s=10.0), self.folder / "restart.log"
            )

"""The columns of the table: what happens while messages are on their way.

An event before which all cells wait (a kill, a wrong clock) strikes the whole house; the others strike one cell.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from google.protobuf import timestamp_pb2

from tests.kit.crossings.cell import EACH, Cell
from tests.kit.crossings.features import archive
from tests.kit.crossings.outlets import Bucket, Pulled, Pushed


def nothing(cell: Cell) -> None:
    """Messages are published in two rounds."""
    for _ in range(2):
        cell.publish()
        cell.complete()
    cell.judge(exact=True)


def seek_back(cell: Cell) -> None:
    """Everything was received; a seek to before the first message brings all of it again, once."""
    begun = time.time() - 1
    cell.publish()
    cell.judge(exact=True)
    seek(cell, begun)
    cell.again()
    cell.publish()
    cell.judge(exact=True)


def seek_ahead(cell: Cell) -> None:
    """What waits is left out by a seek to now; what is published afterwards arrives."""
    cell.suspend()
    waiting = cell.publish()
    seek(cell, time.time() + 0.001)
    cell.forget(waiting)
    cell.suspend(False)
    cell.publish()
    cell.judge(exact=True)


def snapshot(cell: Cell) -> None:
    """What was not acknowledged when a snapshot was made comes again after a seek to it."""
    cell.suspend()
    cell.publish()
    name = cell.space.path("snapshots", "kept")
    cell.space.api.create_snapshot({"name": name, "subscription": cell.subscription})
    received = cell.counted(labelled=True)[1]
    cell.suspend(False)
    cell.judge(exact=True)
    cell.publish()
    cell.judge(exact=True)
    cell.space.api.seek({"subscription": cell.subscription, "snapshot": name})
    cell.again(received)
    cell.judge(exact=True)


def rule_change(cell: Cell) -> None:
    """A rule with an action makes one more copy of what is published while it is there."""
    cell.publish(EACH // 2)
    cell.complete()
    rule = {"name": "late", "sql": "1=1", "action": "SET late = 'yes'"}
    cell.asked("CreateRule", subscription=cell.subscription, rule=rule)
    for number in cell.publish(EACH // 2):
        sent = cell.sent[number]
        if sent.wanted:
            label = "letter" if cell.refuses(number) else "late"
            sent.wanted[label] += 1
            sent.labels.append(label)
    cell.complete()
    cell.asked("DeleteRule", subscription=cell.subscription, name="late")
    cell.publish(EACH // 2)
    cell.judge(exact=True)


def configuration_change(cell: Cell) -> None:
    """Where messages go is changed; what is published after the answer arrives at the new place, and only there."""
    cell.publish(EACH // 2)
    cell.complete()
    old = cell.outlets[-1]
    if isinstance(old, Pushed):
        new = Pushed(cell.refuses)
        request = {"subscription": cell.last or cell.subscription, "push_config": {"push_endpoint": new.url}}
        cell.space.api.modify_push_config(request)
        cell.outlets.append(new)
    elif isinstance(old, Bucket):
        changed(cell, cloud_storage_config=archive(f"{cell.space.project}-b/"))
        cell.outlets.append(Bucket(cell.folder / f"{cell.space.project}-b"))
    elif cell.last:
        target = cell.space.topic("second")
        behind = cell.space.subscription(target, "second-last", **cell.finals())
        cell.update("UpdateSubscriptionOptions", subscription=cell.subscription, forward_to=target)
        cell.outlets.append(Pulled(cell.space, behind))
    else:
        changed(cell, ack_deadline_seconds=30)
        cell.publish(EACH // 2)
        cell.judge(exact=True)
        return
    before = len(old.arrivals())
    cell.publish(EACH // 2)
    cell.judge(exact=True)
    assert len(old.arrivals()) == before, f"{old.arrivals()[before:]} went where messages went before the change"


def suspension(cell: Cell) -> None:
    """What is published while receiving is suspended arrives when it is resumed."""
    cell.publish(EACH // 2)
    cell.suspend()
    cell.publish(EACH // 2)
    cell.suspend(False)
    cell.publish(EACH // 2)
    cell.judge(exact=True)


def recreation(cell: Cell) -> None:
    """A subscription that was deleted and created again gets what is published from then on."""
    cell.publish(EACH // 2)
    cell.complete()
    cell.suspend()
    waiting = cell.publish(EACH // 2)
    cell.space.api.delete_subscription({"subscription": cell.subscription})
    cell.forget(waiting)
    if any(cell.sent[number].due for number in waiting):
        cell.until(lambda: not scheduled(cell), "what was scheduled has been published")
        for number in waiting:
            cell.sent[number].due = 0.0
        cell.forget(waiting)
    cell.subscribe()
    cell.publish(EACH // 2)
    cell.judge(exact=True)


def seek(cell: Cell, seconds: float) -> None:
    """Seek the cell's subscription to a time in seconds since 1970."""
    at = timestamp_pb2.Timestamp()
    at.FromNanoseconds(int(seconds * 1e9))
    cell.space.api.seek({"subscription": cell.subscription, "time": at})


def scheduled(cell: Cell) -> list[Any]:
    """The first messages of the cell's topic that wait for their time."""
    return list(cell.asked("ListScheduledMessages", topic=cell.topic, page_size=10).messages)


def changed(cell: Cell, **fields: Any) -> None:
    """Update fields of the cell's subscription."""
    subscription = {"name": cell.subscription, **fields}
    request = {"subscription": subscription, "update_mask": {"paths": list(fields)}}
    cell.space.api.update_subscription(request)
    cell.created |= fields


QUIET: Final[dict[str, Callable[[Cell], None]]] = {
    "seek back": seek_back,
    "seek ahead": seek_ahead,
    "snapshot": snapshot,
    "rule change": rule_change,
    "configuration change": configuration_change,
    "suspension": suspension,
    "deletion and re-creation": recreation,
}
"""Events of one cell, which leave all others alone: nothing may be lost, and nothing may come twice."""

HARD: Final = {
    "kill": "what keeps messages is killed and started again",
    "adoption": "a publish forwarder is killed, and another one takes over its chain",
    "clock jump": "the server is started with a clock 100 s ahead, and then with the right one",
    "full disk": "the disk is full, until space is made",
}
"""Events of a whole house: nothing may be lost."""

COLUMNS: Final = (*QUIET, *HARD)

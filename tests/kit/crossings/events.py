"""The columns of the table: what happens while messages are on their way.

An event before which all cells wait (a kill, a wrong clock) strikes the whole house; the others strike one cell.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from google.protobuf import timestamp_pb2

from syncpoint.testing.rigs.official import refused
from tests.kit.crossings.cell import Cell, Sent
from tests.kit.crossings.features import DeadLetters, Records, archive
from tests.kit.crossings.outlets import Bucket, Pulled, Pushed


def nothing(cell: Cell) -> None:
    """Messages are published in two rounds."""
    for _ in range(2):
        cell.publish()
        cell.complete()
    cell.judge()


def seek_back(cell: Cell) -> None:
    """Everything was received; a seek to before the first message brings all of it again, once."""
    begun = time.time() - 1
    cell.publish()
    cell.judge()
    seek(cell, begun)
    cell.again()
    cell.publish()
    cell.judge()


def seek_ahead(cell: Cell) -> None:
    """What waits is left out by a seek to now; what is published afterwards arrives."""
    cell.suspend()
    waiting = cell.publish()
    seek(cell, time.time() + 0.001)
    cell.forget(waiting)
    cell.suspend(False)
    cell.publish()
    cell.judge()


def snapshot(cell: Cell) -> None:
    """What was not acknowledged when a snapshot was made comes again after a seek to it."""
    cell.suspend()
    cell.publish()
    name = cell.space.path("snapshots", "kept")
    cell.call("create_snapshot", name=name, subscription=cell.subscription)
    received = cell.counted(labelled=True)[1]
    cell.suspend(False)
    cell.judge()
    cell.publish()
    cell.judge()
    moved_back(cell, cell.subscription, snapshot=name)
    cell.again(received)
    cell.judge()


def rule_change(cell: Cell) -> None:
    """A rule with an action makes one more copy of what is published while it is there, as the action says then."""
    cell.publish(0.5)
    cell.complete()
    said: dict[int, str] = {}
    for method, value in (("CreateRule", "yes"), ("UpdateRule", "again")):
        rule = {"name": "late", "sql": "1=1", "action": f"SET late = '{value}'"}
        cell.asked(method, subscription=cell.subscription, rule=rule)
        for number in cell.publish(0.5):
            said[number] = value
            sent = cell.sent[number]
            if sent.wanted:
                label = "letter" if cell.refuses(number) else "late"
                sent.wanted[label] += 1
                sent.labels.append(label)
        cell.complete()
    cell.asked("DeleteRule", subscription=cell.subscription, name="late")
    cell.publish(0.5)
    cell.judge()
    for one in cell.arrivals():
        if one.label == "late" and not cell.sent[one.number].due:
            assert one.attributes["late"] == said[one.number], one


def configuration_change(cell: Cell) -> None:
    """Where messages go is changed; what is published after the answer arrives at the new place, and only there."""
    cell.publish(0.5)
    cell.complete()
    old = cell.outlets[-1]
    if isinstance(old, Pushed):
        new = Pushed(cell.refuses)
        subscription = cell.last or cell.subscription
        cell.call("modify_push_config", subscription=subscription, push_config={"push_endpoint": new.url})
        cell.outlets.append(new)
    elif isinstance(old, Bucket):
        changed(cell, cell.last or cell.subscription, cloud_storage_config=archive(f"{cell.space.project}-b/"))
        cell.outlets.append(Bucket(cell.folder / f"{cell.space.project}-b"))
    elif cell.last:
        target = cell.new_topic("second")
        behind = cell.new_subscription(target, "second-last", **cell.finals())
        cell.update("UpdateSubscriptionOptions", subscription=cell.subscription, forward_to=target)
        cell.outlets.append(Pulled(cell.space, behind, cell.refuses))
    else:
        changed(cell, cell.subscription, ack_deadline_seconds=30)
    new_ones = cell.publish(0.5)
    cell.judge()
    if old is not cell.outlets[-1]:
        late = [one for one in old.arrivals() if one.number in new_ones]
        assert not late, f"{late} went where messages went before the change"


def suspension(cell: Cell) -> None:
    """What is published while receiving is suspended arrives when it is resumed."""
    cell.publish(0.5)
    cell.suspend()
    cell.publish(0.5)
    cell.suspend(False)
    cell.publish(0.5)
    cell.judge()


def sending_suspension(cell: Cell) -> None:
    """What is accepted waits while a forward's target is suspended for sending; a suspended topic refuses more."""
    topics = [cell.topic, *([cell.feature("forward").target] if cell.last else [])]
    if cell.last:
        cell.update("UpdateTopicOptions", topic=topics[-1], send_suspended=True)
    cell.publish(0.5)
    cell.update("UpdateTopicOptions", topic=cell.topic, send_suspended=True)
    if not cell.has("pipeline write"):
        with refused("FAILED_PRECONDITION"):
            cell.send([({"data": b'{"n": 0}', "attributes": {"n": "0"}}, Sent([], []))])
    for topic in topics:
        cell.update("UpdateTopicOptions", topic=topic, send_suspended=False)
    cell.publish(0.5)
    cell.judge()


def recreation(cell: Cell, detached: bool = False) -> None:
    """A subscription that was deleted and created again gets what is published from then on."""
    cell.publish(0.5)
    cell.complete()
    cell.suspend()
    waiting = cell.publish(0.5)
    if detached:
        cell.call("detach_subscription", subscription=cell.subscription)
        waiting += cell.publish(0.5)
    cell.call("delete_subscription", subscription=cell.subscription)
    cell.forget(waiting)
    if any(cell.sent[number].due for number in waiting):
        cell.until(lambda: not scheduled(cell), "what was scheduled has been published")
        cell.forget(waiting, published=True)
    cell.subscribe()
    cell.publish(0.5)
    cell.judge()


def detaching(cell: Cell) -> None:
    """A subscription that was detached gets nothing more, not what waited either; one in its place does."""
    recreation(cell, detached=True)


def redrive(cell: Cell) -> None:
    """Dead letters are published again where they came from, and so once more when a seek brings them back."""
    begun = time.time() - 1
    letters: DeadLetters = cell.feature("retry and dead letters")
    kept = cell.new_subscription(letters.dead, "kept-letters", retain_acked_messages=True)
    cell.publish()
    cell.publish()
    cell.judge()
    letters.cured = True
    given_up = {number: sent for number, sent in cell.sent.items() if sent.wanted["letter"]}
    assert given_up, "no message became a letter"
    for turn in range(2):
        if turn:
            moved_back(cell, kept, time=at(begun))
        redriven = all_redriven(cell, kept)
        expected = sum(sent.labels.count("letter") for sent in given_up.values())
        assert cell.struck or redriven == expected, f"{redriven} instead of {expected} letters were redriven"
        for number, sent in given_up.items():
            copies = cell.redriven(number)
            sent.late, sent.rounds = True, sent.rounds + len(copies)
            sent.wanted.update(copies)
        cell.judge()
    cell.publish()
    cell.judge()


def all_redriven(cell: Cell, letters: str) -> int:
    """Redrive what a subscription of letters has, page by page, until nothing is left; how many the server says."""
    selection = {"subscription": letters, "source": cell.last or cell.subscription}
    token, redriven = "", 0

    def nothing_left() -> bool:
        nonlocal token, redriven
        answer = cell.asked("RedriveDeadLetters", selection=selection, page_token=token)
        assert cell.struck or not answer.failures, list(answer.failures)
        token, redriven = answer.next_page_token, redriven + answer.redriven
        state = cell.asked("GetSubscriptionState", subscription=letters)
        return bool(not state.backlog_messages and not state.unknown)

    cell.until(nothing_left, "all letters are redriven")
    return redriven


def records_deletion(cell: Cell) -> None:
    """The topic of the records is deleted: messages go on; a new one gets records of what is published from then on."""
    records: Records = cell.feature("records")
    cell.publish()
    cell.judge()
    cell.call("delete_topic", topic=cell.space.path("topics", records.name_of))
    records.first = max(cell.sent) + 1
    cell.publish()
    cell.complete()
    records.first, records.name_of = max(cell.sent) + 1, "records-again"
    cell.update("UpdateTopicOptions", topic=cell.topic, **records.topic_options(cell))
    cell.publish()
    cell.judge()


def seek(cell: Cell, seconds: float) -> None:
    """Seek the cell's subscription to a time in seconds since 1970."""
    moved_back(cell, cell.subscription, time=at(seconds))


def moved_back(cell: Cell, subscription: str, **where: Any) -> None:
    """Seek; one that is asked for again may bring back again what has come in between."""

    def once() -> Any:
        cell.again_at_most += cell.struck
        for sent in cell.sent.values() if cell.struck else ():
            sent.rounds += 1
        return cell.space.api.seek({"subscription": subscription, **where}, timeout=cell.call_s)

    cell.insist(once)


def at(seconds: float) -> timestamp_pb2.Timestamp:
    """A time in seconds since 1970."""
    made = timestamp_pb2.Timestamp()
    made.FromNanoseconds(int(seconds * 1e9))
    return made


def scheduled(cell: Cell) -> list[Any]:
    """The first messages of the cell's topic that wait for their time."""
    return list(cell.asked("ListScheduledMessages", topic=cell.topic, page_size=10).messages)


def changed(cell: Cell, name: str, **fields: Any) -> None:
    """Update fields of a subscription of the cell."""
    cell.call("update_subscription", subscription={"name": name, **fields}, update_mask={"paths": list(fields)})
    if name == cell.subscription:
        cell.created |= fields


QUIET: Final[dict[str, Callable[[Cell], None]]] = {
    "seek back": seek_back,
    "seek ahead": seek_ahead,
    "snapshot": snapshot,
    "rule change": rule_change,
    "configuration change": configuration_change,
    "suspension": suspension,
    "suspension for sending": sending_suspension,
    "deletion and re-creation": recreation,
    "detaching": detaching,
    "redrive": redrive,
    "deletion of records": records_deletion,
}
"""Events of one cell, which leave all others alone: nothing may be lost, and nothing may come twice."""

NEEDS: Final = {"redrive": "retry and dead letters", "deletion of records": "records"}
"""Events that need a row, which is crossed with the others then."""

HARD: Final = {
    "kill": "what keeps messages is killed and started again",
    "adoption": "a publish forwarder is killed, and another one takes over its chain; one of two workers is killed",
    "drain": "the publish forwarder of a chain is drained, and hands it over; then it comes back",
    "rolling restart": "all processes are restarted, one after the other",
    "metadata restore": "all processes are stopped, the metadata lost, restored from a backup, and all started",
    "clock jump": "the server is started with a clock 100 s ahead, and then with the right one",
    "full disk": "the disk is full, until space is made",
}
"""Events of a whole house: nothing may be lost."""

COLUMNS: Final = (*QUIET, *HARD)

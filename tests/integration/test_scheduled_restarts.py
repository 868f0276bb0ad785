"""Scheduled messages of the official client over `kill -9` at the instants at which they are due, on one server."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from syncpoint.testing.rigs import official
from syncpoint.testing.server_process import ServerProcess
from tests.integration.conftest import Space

pytestmark = pytest.mark.shows("schedules")

AT, ID = "sys.ScheduledEnqueueTimeUtc", "sys.ScheduledMessageId"
KILLS = 4
EACH = 150


def test_each_is_published_once_and_not_early_over_kill_9(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    try:
        space = Space(server.start().endpoint)
        topic, subscription = space.pair(ack_deadline_seconds=60)
        publisher = official.publisher(server.endpoint)
        kills: list[datetime] = []
        dues: dict[str, datetime] = {}
        for kill in range(KILLS):
            due = datetime.now(UTC) + timedelta(seconds=5)  # in which all are published
            if kills:
                due = max(due, kills[-1] + timedelta(seconds=3))
            kills.append(due)
            text = due.isoformat().replace("+00:00", "Z")
            waiting = [publisher.publish(topic, b"%d %d" % (kill, n), **{AT: text}) for n in range(EACH)]
            dues |= {one.result(timeout=30): due for one in waiting}
        publisher.stop()
        assert len(dues) == KILLS * EACH
        for kill, due in enumerate(kills):
            time.sleep(max(0.0, (due - datetime.now(UTC)).total_seconds() + 0.03 * kill))
            server.restart(hard=True)
        space.close()
        space = Space(server.endpoint)
        got = space.pull(subscription, KILLS * EACH, within=60, ack=True)
        assert not space.peek(subscription)
        names = [one.message.attributes[ID] for one in got]
        assert sorted(names) == sorted(dues), "each once"
        assert len({one.message.message_id for one in got}) == len(got)
        assert all(one.message.publish_time >= dues[one.message.attributes[ID]] for one in got), "none early"
        space.close()
    finally:
        server.close()

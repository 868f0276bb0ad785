"""Restarts leave nothing behind: thirty lives of one server, ended by kill -9 and by SIGTERM in turn."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from syncpoint.front.client.client import Client
from syncpoint.testing.rigs.official import eventually
from syncpoint.wire.protobuf.messages import admin

pytestmark = pytest.mark.shows("restarts")

LIVES = 30
TOPICS = 300
USED = 20  # topics that get messages in every life
FILES_MAX = 24  # a few segments, a few spare ones, identities, marks, the metadata file
BYTES_MAX = 12 * (64 << 20)
RSS_GROWTH_MAX = 8 << 20


def files(data: Path) -> list[Path]:
    """The server may delete while this looks."""
    return [Path(folder) / name for folder, _, names in os.walk(data) for name in names]


def size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def rss(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


class Life:
    """What the admin service says while one process runs."""

    def __init__(self, server) -> None:
        self.client = Client(server.endpoint)

    def server(self):
        return self.client.call("Admin.GetServer", admin.GetServerRequest())

    def sources(self, topics) -> list[int]:
        """Numbers of all sources of these topics."""
        found = []
        for topic in topics:
            state = self.client.call("Admin.GetTopicState", admin.GetTopicStateRequest(topic=topic))
            found += [source.source for source in state.sources]
        return found

    def close(self) -> None:
        self.client.close()


@pytest.mark.long
def test_thirty_lives_leave_nothing_behind(boot, enter) -> None:
    server = boot()
    space = enter(server.endpoint)
    with ThreadPoolExecutor(16) as pool:
        topics = list(pool.map(lambda number: space.topic(f"topic-{number}"), range(TOPICS)))
        subscriptions = list(
            pool.map(lambda number: space.subscription(topics[number], f"sub-{number}"), range(TOPICS))
        )
    counters, ids, sizes, sources, memory = [], [], [], [], []
    for number in range(LIVES):
        again = enter(server.endpoint)
        again.project = space.project
        life = Life(server)
        try:
            memory.append(rss(server.pid))
            state = life.server()
            assert (state.topics, state.subscriptions) == (TOPICS, TOPICS)
            counters.append(state.log_counter)
            first = number * 7 % TOPICS
            for at in range(first, first + USED):
                sent = again.publish(topics[at % TOPICS], b"x" * 100, b"y")
                got = again.pull(subscriptions[at % TOPICS], 2, ack=True)
                assert {one.message.message_id for one in got} == set(sent)
                ids += sent
            if number % 5 == 4:  # all this is deleted in the background: give it a moment now and then
                eventually(lambda: len(files(server.data)) <= FILES_MAX, what="files are deleted")
                # This life's sources stay open, the others go with their messages.
                eventually(lambda life=life: len(life.sources(topics)) <= 5 * USED, what="sources go")
                sources.append(len(life.sources(topics)))
                sizes.append(sum(map(size, files(server.data))))
        finally:
            life.close()
            again.close()
        server.restart(hard=number % 3 != 2)
    assert counters == sorted(set(counters))
    assert len(set(ids)) == len(ids) == LIVES * USED * 2
    assert max(sizes) <= BYTES_MAX
    assert max(sizes[1:]) <= 1.5 * sizes[0]
    assert max(memory[-5:]) - min(memory[1:6]) < RSS_GROWTH_MAX, memory


def test_lives_too_short_for_anything_do_not_pile_up(boot, enter) -> None:
    """Killed as soon as it served, again and again; then one life long enough to tidy."""
    server = boot()
    space = enter(server.endpoint)
    topic, subscription = space.pair()
    sent = []
    for _ in range(8):
        again = enter(server.endpoint)
        sent += again.publish(topic, b"x")
        server.restart(hard=True)
    again = enter(server.endpoint)
    got = again.pull(subscription, len(sent), within=30, ack=True)
    assert sorted(one.message.message_id for one in got) == sorted(sent)
    eventually(lambda: len(files(server.data)) <= FILES_MAX, what="files are deleted")
    # A message that was copied forward before it was acknowledged is in the log of this life. That log goes once
    # another one has a checkpoint, which a start writes where it has read something that is in none.
    server.restart()
    again = enter(server.endpoint)
    again.publish(topic, b"x")
    server.restart(hard=True)
    life = Life(server)
    try:
        eventually(lambda: len(life.sources([topic])) == 1, what="sources go")
    finally:
        life.close()

"""What exists survives: topics, subscriptions and snapshots over crashes, also when the metadata folder is lost."""

from __future__ import annotations

import shutil

import pytest

from syncpoint.testing.rigs.official import bodies, eventually, refused
from syncpoint.testing.server_process import ServerFailed, ServerProcess

pytestmark = pytest.mark.shows("catalog")


def picture(space):
    """Everything the admin calls show of a project."""
    project = f"projects/{space.project}"
    return (
        list(space.api.list_topics({"project": project}).topics),
        list(space.api.list_subscriptions({"project": project}).subscriptions),
        list(space.api.list_snapshots({"project": project}).snapshots),
    )


def furnish(space):
    """Make, change and delete a bit of everything."""
    for number in range(5):
        topic = space.topic(f"topic-{number}", labels={"n": str(number)})
        subscription = space.subscription(topic, f"sub-{number}", ack_deadline_seconds=60 + number)
        space.publish(topic, b"message of %d" % number)
        space.api.create_snapshot({"name": space.path("snapshots", f"snap-{number}"), "subscription": subscription})
    space.api.delete_topic({"topic": space.path("topics", "topic-3")})
    space.api.delete_subscription({"subscription": space.path("subscriptions", "sub-4")})
    space.api.delete_snapshot({"snapshot": space.path("snapshots", "snap-0")})
    space.api.update_subscription(
        {
            "subscription": {"name": space.path("subscriptions", "sub-0"), "labels": {"changed": "yes"}},
            "update_mask": {"paths": ["labels"]},
        }
    )


def reenter(enter, server, space):
    """The same project, after a restart."""
    again = enter(server.endpoint)
    again.project = space.project
    return again


def expect_backlog(space):
    for number in range(4):
        (got,) = space.pull(space.path("subscriptions", f"sub-{number}"), within=30, ack=True)
        assert got.message.data == b"message of %d" % number


def test_the_catalog_survives_a_crash_right_after_the_answer(boot, enter):
    server = boot()
    space = enter(server.endpoint)
    furnish(space)
    before = picture(space)
    server.restart(hard=True)
    space = reenter(enter, server, space)
    assert picture(space) == before
    assert len(before[0]) == 4
    expect_backlog(space)
    server.restart()
    assert picture(reenter(enter, server, space)) == before


@pytest.mark.parametrize("hard", [True, False])
def test_the_catalog_survives_the_loss_of_the_data_folder(boot, enter, tmp_path, hard):
    """The disks are elsewhere; the data folder with its database is deleted while the server is down."""
    disks = [tmp_path / f"disk-{number}" for number in range(3)]
    server = boot(tmp_path / "meta", disks=disks)
    space = enter(server.endpoint)
    furnish(space)
    before = picture(space)
    if hard:
        server.kill9()
    else:
        server.terminate()
    shutil.rmtree(tmp_path / "meta")
    server.start()
    space = reenter(enter, server, space)
    assert picture(space) == before
    expect_backlog(space)
    ids = space.publish(space.path("topics", "topic-0"), b"new")
    assert [one.message.message_id for one in space.pull(space.path("subscriptions", "sub-0"))] == ids


def test_the_catalog_survives_the_loss_of_the_data_folder_and_one_disk(boot, enter, tmp_path):
    disks = [tmp_path / f"disk-{number}" for number in range(3)]
    server = boot(tmp_path / "meta", disks=disks)
    space = enter(server.endpoint)
    furnish(space)
    before = picture(space)
    server.kill9()
    shutil.rmtree(tmp_path / "meta")
    shutil.rmtree(disks[1])
    server.start()
    space = reenter(enter, server, space)
    assert picture(space) == before
    expect_backlog(space)


def test_deleted_things_stay_deleted_over_crashes(boot, enter):
    server = boot()
    space = enter(server.endpoint)
    topic, subscription = space.pair()
    space.publish(topic, b"old")
    space.api.delete_subscription({"subscription": subscription})
    space.api.delete_topic({"topic": topic})
    server.restart(hard=True)
    space = reenter(enter, server, space)
    with refused("NOT_FOUND"):
        space.api.get_topic({"topic": topic})
    with refused("NOT_FOUND"):
        space.api.get_subscription({"subscription": subscription})
    topic, subscription = space.pair()
    space.publish(topic, b"new")
    assert bodies(space.pull(subscription)) == [b"new"]


def test_a_seek_survives_a_crash(boot, enter):
    server = boot()
    space = enter(server.endpoint)
    topic, subscription = space.pair(retain_acked_messages=True, ack_deadline_seconds=600)
    space.publish(topic, b"a", b"b")
    space.pull(subscription, 2, ack=True)
    space.api.seek({"subscription": subscription, "time": {"seconds": 1}})
    server.restart(hard=True)
    space = reenter(enter, server, space)
    assert sorted(bodies(space.pull(subscription, 2, within=30, ack=True))) == [b"a", b"b"]
    server.restart(hard=True)
    assert not reenter(enter, server, space).peek(subscription)


def test_a_snapshot_survives_a_crash_with_its_messages(boot, enter):
    server = boot()
    space = enter(server.endpoint)
    topic, subscription = space.pair(ack_deadline_seconds=600)
    space.publish(topic, b"a", b"b")
    name = space.api.create_snapshot({"name": space.path("snapshots", "snap"), "subscription": subscription}).name
    space.pull(subscription, 2, ack=True)
    server.restart(hard=True)
    space = reenter(enter, server, space)
    assert not space.peek(subscription)
    space.api.seek({"subscription": subscription, "snapshot": name})
    assert sorted(bodies(space.pull(subscription, 2))) == [b"a", b"b"]


def test_a_second_server_on_the_same_data_is_refused(boot, enter, tmp_path):
    data = tmp_path / "data"
    server = boot(data)
    second = ServerProcess(data)
    with pytest.raises(ServerFailed) as caught:
        second.start(30)
    assert "data" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert second.returncode not in (0, None)
    space = enter(server.endpoint)
    topic, subscription = space.pair()
    space.publish(topic, b"the first one goes on")
    assert space.pull(subscription)


def test_a_second_server_on_the_same_disks_is_refused(boot, enter, tmp_path):
    disks = [tmp_path / f"disk-{number}" for number in range(3)]
    server = boot(tmp_path / "one", disks=disks)
    second = ServerProcess(tmp_path / "two", disks=disks)
    with pytest.raises(ServerFailed):
        second.start(30)
    assert "Traceback" not in second.logs()
    assert enter(server.endpoint).topic()


def test_the_data_can_be_taken_over_after_a_crash(boot, enter, tmp_path):
    """A lock that outlives its dead owner would keep the service down."""
    first = boot(tmp_path / "data")
    space = enter(first.endpoint)
    topic, subscription = space.pair()
    space.publish(topic, b"x")
    first.kill9()
    second = boot(tmp_path / "data")
    assert bodies(enter(second.endpoint).pull(subscription, within=30)) == [b"x"]


def test_a_polite_end_is_quick_with_streams_open_and_clients_find_back(boot, enter):
    server = boot()
    space = enter(server.endpoint)
    topic, subscription = space.pair()
    held = [space.stream(subscription) for _ in range(5)]
    received = []

    def callback(message):
        received.append(message.data)
        message.ack()

    other = space.subscription(topic, "other")
    space.listen(other, callback)
    space.publish(topic, b"before")
    eventually(lambda: received)
    assert server.terminate(timeout=20) == 0
    assert {stream.ended() for stream in held} == {"UNAVAILABLE"}
    assert all("Server shutdownNow invoked" not in stream.text for stream in held)
    server.start()
    enter(server.endpoint).publish(topic, b"after")
    eventually(lambda: b"after" in received, within=60)


def test_a_pull_that_waits_does_not_hold_up_the_end(boot, enter):
    server = boot()
    space = enter(server.endpoint)
    _, subscription = space.pair()
    waiting = space.api.pull.future({"subscription": subscription, "max_messages": 1}, timeout=60)
    assert not waiting.done()
    assert server.terminate(timeout=20) == 0
    eventually(waiting.done)

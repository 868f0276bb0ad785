"""The catalog in SQLite is a copy: removed, old, or damaged, the server starts and has the whole catalog."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from syncpoint.front.client.client import Client
from syncpoint.testing.rigs.official import eventually
from syncpoint.wire.protobuf.messages import admin

pytestmark = pytest.mark.shows("options")

NAME = "metadata.sqlite"


def picture(space):
    """Everything the admin calls show of a project."""
    project = {"project": f"projects/{space.project}"}
    return (
        list(space.api.list_topics(project).topics),
        list(space.api.list_subscriptions(project).subscriptions),
        list(space.api.list_snapshots(project).snapshots),
    )


def furnish(space, begin: int) -> None:
    """A bit of everything, made, changed and deleted."""
    for number in range(begin, begin + 5):
        topic = space.topic(f"topic-{number}", labels={"n": str(number)})
        name = space.subscription(topic, f"sub-{number}", ack_deadline_seconds=20 + number)
        space.publish(topic, b"message of %d" % number)
        space.api.create_snapshot({"name": space.path("snapshots", f"snap-{number}"), "subscription": name})
    space.api.delete_topic({"topic": space.path("topics", f"topic-{begin + 1}")})
    space.api.delete_subscription({"subscription": space.path("subscriptions", f"sub-{begin + 2}")})
    space.api.delete_snapshot({"snapshot": space.path("snapshots", f"snap-{begin + 3}")})
    space.api.detach_subscription({"subscription": space.path("subscriptions", f"sub-{begin + 3}")})


def set_limit(endpoint: str, messages: int) -> None:
    with Client(endpoint) as client:
        limits = admin.Limits(topic=admin.FlowLimit(messages=messages))
        request = admin.UpdateLimitsRequest(limits=limits, update_mask={"paths": ["topic"]})
        client.call("Admin.UpdateLimits", request)


def server_state(endpoint: str):
    with Client(endpoint) as client:
        return (
            client.call("Admin.GetServer", admin.GetServerRequest()),
            client.call("Admin.GetLimits", admin.GetLimitsRequest()),
        )


def keep(data: Path, aside: Path) -> None:
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    for path in data.glob(f"{NAME}*"):
        shutil.copy2(path, aside / path.name)


def remove(data: Path, aside: Path) -> None:
    for path in data.glob(f"{NAME}*"):
        path.unlink()


def bring_old(data: Path, aside: Path) -> None:
    remove(data, aside)
    for path in aside.iterdir():
        shutil.copy2(path, data / path.name)


def spoil(data: Path, aside: Path) -> None:
    path = data / NAME
    path.write_bytes(b"\xa5" * path.stat().st_size)


def spoil_inside(data: Path, aside: Path) -> None:
    """The head of the file is good, most of the rest is not."""
    for path in data.glob(f"{NAME}-*"):
        path.unlink()
    path = data / NAME
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)


def truncate(data: Path, aside: Path) -> None:
    path = data / NAME
    path.write_bytes(path.read_bytes()[:5000])


def empty(data: Path, aside: Path) -> None:
    remove(data, aside)
    (data / NAME).touch()


@pytest.mark.parametrize("hard", [True, False])
def test_whatever_becomes_of_the_copy_the_catalog_is_whole(boot, enter, tmp_path, hard) -> None:
    """One server goes through all of it, so that every new copy is also the one that is harmed next."""
    server = boot()
    space = enter(server.endpoint)
    furnish(space, 0)
    server.terminate()
    keep(server.data, tmp_path / "aside")  # at this revision, and with this log counter
    server.start()
    for number, damage in enumerate((remove, bring_old, spoil, spoil_inside, truncate, empty), 1):
        space = again(enter, server, space)
        furnish(space, 10 * number)
        set_limit(server.endpoint, 1000 + number)
        before, (server_before, limits_before) = picture(space), server_state(server.endpoint)
        if hard:
            server.kill9()
        else:
            server.terminate()
        damage(server.data, tmp_path / "aside")
        server.start()
        space = again(enter, server, space)
        after, limits = server_state(server.endpoint)
        assert picture(space) == before, damage
        assert limits == limits_before
        assert limits.topic.messages == 1000 + number
        assert after.universe == server_before.universe
        assert after.log_counter > server_before.log_counter
        (got,) = space.pull(space.path("subscriptions", f"sub-{10 * number}"), within=30, ack=True)
        assert got.message.data == b"message of %d" % (10 * number)
    assert "Traceback" not in server.logs()


def test_a_damaged_copy_is_kept_for_who_wants_to_look(boot, enter) -> None:
    server = boot()
    enter(server.endpoint).topic()
    server.terminate()
    spoil(server.data, server.data)
    server.start()
    assert "is damaged" in server.logs()
    eventually(lambda: (server.data / f"{NAME}.damaged").exists())


def again(enter, server, space):
    """The same project, after a restart."""
    made = enter(server.endpoint)
    made.project = space.project
    return made

"""Room that projects share: one alone never has all of it."""

from __future__ import annotations

import pytest

from syncpoint.base.model.errors import ResourceExhausted
from syncpoint.broker.publish.facts.project_room import ProjectRoom


def fill(room: ProjectRoom, project: str, size: int = 10) -> int:
    taken = 0
    while True:
        try:
            room.take(project, size)
        except ResourceExhausted:
            return taken
        taken += size


def test_a_project_leaves_as_much_as_it_has_and_what_it_gives_back_is_free_again() -> None:
    room = ProjectRoom(100)
    assert fill(room, "a") == 50
    assert fill(room, "b") == 20, "as much as is left then, and the rest is for others"
    assert fill(room, "c") == 10
    assert fill(room, "d", 30) == 0
    for _ in range(5):
        room.give_back("a", 10)
    assert fill(room, "c") == 30
    assert fill(room, "a") == 20
    for project, size in (("a", 20), ("b", 20), ("c", 40)):
        room.give_back(project, size)
    assert len(room) == 0


def test_what_is_larger_than_all_goes_alone() -> None:
    room = ProjectRoom(100)
    room.take("a", 200)
    for project in "ab":
        with pytest.raises(ResourceExhausted, match="Retry with backoff"):
            room.take(project, 1)
    room.give_back("a", 200)
    room.take("b", 1)

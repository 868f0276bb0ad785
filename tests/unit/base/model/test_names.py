"""The grammar of resource names."""

from __future__ import annotations

import pytest

from syncpoint.base.model import names
from syncpoint.base.model.errors import InvalidArgument


@pytest.mark.parametrize("identifier", ["abc", "a-b_c.d~e+f%g", "A" * 255, "topic-1", "Google", "gooooal", "a12"])
def test_legal_ids(identifier: str) -> None:
    name = f"projects/p/topics/{identifier}"
    assert names.parse_topic(name) == name
    assert names.short_id(name) == identifier
    assert names.project_of(name) == "projects/p"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "projects/p/topics/ab",
        "projects/p/topics/1abc",
        "projects/p/topics/googabc",
        "projects/p/topics/" + "a" * 256,
        "projects/p/topics/a bc",
        "projects/p/topics/abc\n",
        "projects/p/topics/abé",
        "projects/p/topics/abc/def",
        "projects/p/topics/../abc",
        "projects/p/topics/..",
        "projects/p/topics/%2e%2e",
        "projects/p/topics/a\0bc",
        "projects/p/topics/t\u043epic",
        "projects//topics/abc",
        "projects/p/subscriptions/abc",
        "/projects/p/topics/abc",
        names.DELETED_TOPIC,
    ],
)
def test_illegal_topics_are_refused_with_pubsub_text(name: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        names.parse_topic(name)
    assert caught.value.message.startswith(f"Invalid [topics] name: (name={name}). Use projects/PROJECT/topics/NAME.")


def test_other_collections() -> None:
    assert names.parse_subscription("projects/p/subscriptions/sub")
    assert names.parse_snapshot("projects/p/snapshots/snap")
    assert names.parse_project("projects/example.com:p-1")
    with pytest.raises(InvalidArgument, match=r"Invalid \[subscriptions\] name"):
        names.parse_subscription("projects/p/topics/sub")
    with pytest.raises(InvalidArgument, match=r"Invalid \[snapshots\] name"):
        names.parse_snapshot("x")
    with pytest.raises(InvalidArgument, match=r"Invalid \[projects\] name: .* Use projects/PROJECT"):
        names.parse_project("foo")
    assert names.resource_name("projects/p", "topics", "abc") == "projects/p/topics/abc"

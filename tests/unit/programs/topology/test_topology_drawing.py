"""Pictures: whole, and with everything in a place of its own."""

from __future__ import annotations

import re
from xml.dom import minidom

from hypothesis import given
from hypothesis import strategies as st

from syncpoint.programs.topology.topology_drawing import drawn
from syncpoint.programs.topology.topology_flows import ProjectGraph, SubscriptionNode, TopicNode


def topic(name: str) -> str:
    return f"projects/p/topics/{name}"


def graph(*edges: tuple[str, str, str]) -> ProjectGraph:
    """Subscriptions (topic, forward, letters), numbered."""
    found = ProjectGraph()
    for number, (begin, forward, letters) in enumerate(edges):
        name = f"projects/p/subscriptions/s{number}"
        node = SubscriptionNode(name, topic(begin), forward and topic(forward), letters and topic(letters))
        found.subscriptions[name] = node
        for one in (node.topic, node.forward, node.letters):
            if one:
                found.topics.setdefault(one, TopicNode(one))
    return found


@given(
    st.lists(st.tuples(*[st.sampled_from(["", "a", "b", "c", "d"])] * 3).filter(lambda one: bool(one[0])), max_size=9)
)
def test_everything_has_a_place_of_its_own_also_where_it_goes_round(edges: list[tuple[str, str, str]]) -> None:
    found = graph(*edges)
    document = minidom.parseString(drawn(found))
    places = [(one.getAttribute("x"), one.getAttribute("y")) for one in document.getElementsByTagName("rect")]
    assert len(places) == len(set(places)) == len(found.topics) + len(found.subscriptions)
    wanted = sum(1 + bool(forward) + bool(letters) for _, forward, letters in edges)
    assert len(re.findall('class="edge', drawn(found))) == wanted


def test_messages_go_from_left_to_right() -> None:
    found = graph(("a", "b", "d"), ("b", "c", ""), ("c", "", ""))
    text = drawn(found)
    x = {name: int(re.search(rf'<title>{name}</title><rect class="[^"]*" x="(\d+)"', text)[1]) for name in "abcd"}  # type: ignore[index]
    assert x["a"] < x["b"] == x["d"] < x["c"]


def test_rates_are_what_was_published_and_acknowledged_meanwhile() -> None:
    found = graph(("a", "", ""))
    (sub,) = found.subscriptions.values()
    found.measure({topic("a"): {1: 100}, sub.name: {1: 50}}, {topic("a"): {1: 120, 2: 20}, sub.name: {1: 40}}, 2.0)
    assert found.topics[topic("a")].rate == 20.0
    assert sub.rate == 0.0, "a source that was emptied counts anew"
    sub.backlog = 1_234
    text = drawn(found)
    assert "20.0/s in" in text
    assert "0.0/s out, 1,234 wait" in text


def test_names_are_text() -> None:
    found = ProjectGraph({topic("a<b"): TopicNode(topic("a<b"), suspended=True)})
    assert minidom.parseString(drawn(found)).getElementsByTagName("title")[1].firstChild.data == "a<b"

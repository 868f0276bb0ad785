"""Filters: twelve sets of attributes against a table of filters, each on a real subscription."""

from __future__ import annotations

import pytest

from syncpoint.testing.rigs.official import attributes_of, bodies, refused

pytestmark = pytest.mark.shows("filters")

SETS = [
    {"none": "of these matter"},
    {"lang": "en"},
    {"lang": "de"},
    {"lang": ""},
    {"lang": "en", "region": "eu"},
    {"lang": "en", "region": "us-east"},
    {"region": "us-west"},
    {"region": "us"},
    {"Lang": "en"},
    {"iana.org/language_tag": "en"},
    {"schlüssel": "wörter ✓"},
    {"lang": 'quote " and \\ backslash'},
]


def has(key):
    return lambda one: key in one


def equals(key, value):
    return lambda one: one.get(key) == value


def differs(key, value):
    return lambda one: one.get(key) != value


def starts(key, prefix):
    return lambda one: one.get(key, "\0").startswith(prefix)


def both(left, right):
    return lambda one: left(one) and right(one)


def either(left, right):
    return lambda one: left(one) or right(one)


def no(inner):
    return lambda one: not inner(one)


FILTERS = {
    "attributes:lang": has("lang"),
    'attributes.lang = "en"': equals("lang", "en"),
    'attributes.lang="en"': equals("lang", "en"),
    'attributes.lang != "en"': differs("lang", "en"),
    'attributes.lang = ""': equals("lang", ""),
    'hasPrefix(attributes.region, "us")': starts("region", "us"),
    'hasPrefix(attributes.region, "")': has("region"),
    "NOT attributes:lang": no(has("lang")),
    "-attributes:lang": no(has("lang")),
    'NOT attributes.lang = "en"': no(equals("lang", "en")),
    'attributes.lang = "en" AND attributes:region': both(equals("lang", "en"), has("region")),
    'attributes.lang = "de" OR hasPrefix(attributes.region, "us-")': either(
        equals("lang", "de"), starts("region", "us-")
    ),
    'attributes:lang AND NOT (attributes.lang = "de" OR attributes:region)': both(
        has("lang"), no(either(equals("lang", "de"), has("region")))
    ),
    '(attributes:lang OR attributes:region) AND attributes.lang != "en"': both(
        either(has("lang"), has("region")), differs("lang", "en")
    ),
    'attributes."iana.org/language_tag" = "en"': equals("iana.org/language_tag", "en"),
    'attributes:"iana.org/language_tag"': has("iana.org/language_tag"),
    'attributes."schlüssel" = "wörter ✓"': equals("schlüssel", "wörter ✓"),
    r'attributes.lang = "quote \" and \\ backslash"': equals("lang", 'quote " and \\ backslash'),
    "attributes:nobody_has_this": has("nobody_has_this"),
    "NOT attributes:nobody_has_this": no(has("nobody_has_this")),
    'NOT (NOT attributes.lang = "en")': equals("lang", "en"),
}


def test_the_table_of_filters(space):
    topic = space.topic()
    subscriptions = {
        text: space.subscription(topic, f"sub-{number}", filter=text) for number, text in enumerate(FILTERS)
    }
    for number, attributes in enumerate(SETS):
        space.publish(topic, b"%d" % number, attributes=attributes)
    wrong = []
    for text, subscription in subscriptions.items():
        expected = {number for number, one in enumerate(SETS) if FILTERS[text](one)}
        got = space.pull(subscription, len(expected), ack=True) if expected else []
        got += space.peek(subscription)
        numbers = [int(body) for body in bodies(got)]
        assert all(attributes_of(one) == SETS[int(one.message.data)] for one in got)
        if sorted(numbers) != sorted(expected):
            wrong.append((text, sorted(numbers), sorted(expected)))
    assert not wrong


BAD = [
    "attributes",
    "attributes.",
    "attributes:",
    "attributes.lang",
    'attributes.lang == "en"',
    "attributes.lang = en",
    'attributes.lang = "en',
    'lang = "en"',
    'attributes.lang = "en" AND',
    'AND attributes.lang = "en"',
    "attributes:a AND attributes:b OR attributes:c",
    "(attributes:a",
    "attributes:a)",
    "NOT",
    "hasPrefix(attributes.lang)",
    'hasPrefix("lang", "e")',
    'hasprefix(attributes.lang, "e")',
    'attributes.lang > "en"',
    "attributes:a attributes:b",
    "attributes:a and attributes:b",
    "data:a",
    "x" * 257,
]


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:40])
def test_a_bad_filter_is_refused_at_creation(space, text):
    name = space.path("subscriptions", "sub")
    with refused("INVALID_ARGUMENT", "filter"):
        space.api.create_subscription({"name": name, "topic": space.topic(), "filter": text})


def test_a_filter_of_256_bytes_is_accepted_and_one_more_is_not(space):
    topic = space.topic()
    text = 'attributes.k = "' + "v" * 239 + '"'
    assert len(text) == 256
    space.subscription(topic, "just", filter=text)
    with refused("INVALID_ARGUMENT", "filter"):
        space.subscription(topic, "over", filter=text.replace("k", "kk", 1))


def test_messages_that_do_not_match_are_no_backlog(space):
    """They are acknowledged by the service: nothing of them is left for a later pull, stream or seek of the unacked."""
    topic, subscription = space.pair(filter="attributes:wanted", ack_deadline_seconds=600)
    for _ in range(3):
        space.publish(topic, *[b"unwanted"] * 1000, attributes={"other": "x"})
    space.publish(topic, b"wanted", attributes={"wanted": ""})
    assert bodies(space.pull(subscription)) == [b"wanted"]
    assert not space.peek(subscription)


def test_filters_and_flow_control_do_not_block_each_other(space):
    topic, subscription = space.pair(filter='attributes.n = "7"', ack_deadline_seconds=600)
    stream = space.stream(subscription, max_outstanding_messages=1)
    for number in range(100):
        space.publish(topic, b"%d" % number, attributes={"n": str(number % 10)})
    done = 0
    while done < 10:
        got = stream.wait(done + 1)
        space.ack(subscription, *got[done:])
        done = len(got)
    assert [int(body) for body in stream.bodies] == list(range(7, 100, 10))

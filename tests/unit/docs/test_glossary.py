"""The glossary explains each thing that commands manage, each role of a process, and the terms of Pub/Sub."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from syncpoint.node.cluster.settings import ROLES
from syncpoint.programs.cli.main import cli

pytestmark = pytest.mark.shows("tour")

PAGE = Path(__file__).parents[3] / "docs" / "glossary.md"
ROWS = re.findall(r"^- \*\*(.+?)\*\*(?:, (.+?))?: (.+)$", PAGE.read_text(), re.MULTILINE)
WORDS = {word for first, other, _ in ROWS for word in (first, other) if word}

NO_THINGS = {"analyze", "bench", "config", "dashboards", "iam", "keys", "limits", "server", "simulate"}
"""Groups of commands that are named by what they do, or by a word in its everyday meaning."""
SHORT = {
    "audit": "audit log",
    "classes": "durability class",
    "dead-letters": "dead letter",
    "message-transforms": "transform",
    "scheduled": "scheduled message",
    "slo": "SLO",
}
OF_PUBSUB = (
    "cluster", "control plane", "data plane", "global service", "horizontally scalable", "message", "network distance",
    "prober", "publish message source", "Pub/Sub service", "publisher", "router", "routing constraint", "SLA", "SLI",
    "SLO", "subscriber", "subscription", "sync point", "topic",
)  # fmt: skip


def managed(group: click.Group = cli) -> Iterator[str]:
    """The names of all groups of commands."""
    context = click.Context(group)
    for name in group.list_commands(context):
        if isinstance(command := group.get_command(context, name), click.Group):
            yield name
            yield from managed(command)


@pytest.mark.parametrize("name", sorted(set(managed()) - NO_THINGS))
def test_what_commands_manage_is_explained(name: str) -> None:
    assert SHORT.get(name, name.removesuffix("s")) in WORDS


@pytest.mark.parametrize("role", ROLES)
def test_each_role_of_a_process_is_explained(role: str) -> None:
    assert ("storage process" if role == "storage" else role.replace("-", " ")) in WORDS


@pytest.mark.parametrize("word", OF_PUBSUB)
def test_a_reader_who_knows_pubsub_finds_its_words(word: str) -> None:
    assert word in WORDS


def test_words_stand_once_and_in_their_order() -> None:
    firsts = [first.lower() for first, _, _ in ROWS]
    assert firsts == sorted(set(firsts))
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("- **")]
    assert len(rows) == len(ROWS), "a row that is not a word and its meaning"


def test_meanings_name_only_words_that_are_there() -> None:
    for first, _, meaning in ROWS:
        named = re.findall(r"(?<!\*)\*([a-z ]+)\*(?!\*)", meaning)
        if see := re.match(r"See ([^.]+)\.", meaning):
            named += see[1].split(", ")
        assert not [one for one in named if one not in WORDS and one != "recorded"], first

"""Tables: what is cut on a terminal, what never is, and how ages are reported."""

import os
from types import SimpleNamespace

import pytest

from syncpoint.programs.cli import output
from syncpoint.wire.protobuf.messages import admin, pubsub


@pytest.fixture
def terminal(monkeypatch):
    """Standard output is a terminal of so many columns."""

    def become(columns):
        monkeypatch.setattr(output, "_is_terminal", lambda: True)
        size = os.terminal_size((columns, 24))
        monkeypatch.setattr(output, "shutil", SimpleNamespace(get_terminal_size=lambda: size))

    return become


@pytest.fixture
def pulled(server):
    """One message with much data."""
    answer = pubsub.PullResponse()
    one = answer.received_messages.add(ack_id="a" * 60)
    one.message.data, one.message.message_id = b"x" * 300, "1" * 33
    server.answers["Subscriber.Pull"] = answer
    server.answers["Subscriber.Acknowledge"] = pubsub.AcknowledgeRequest()


def test_long_cells_are_cut_but_never_what_the_next_command_takes(run, pulled, terminal):
    terminal(120)
    result = run("subscriptions", "pull", "billing")
    assert "x…" in result.stdout
    assert "x" * 21 not in result.stdout
    assert "a" * 60 in result.stdout
    assert "1" * 33 in result.stdout
    assert "--wide" in result.stderr


@pytest.mark.parametrize("words", [["--wide"], ["--auto-ack"]])
def test_nothing_is_cut_when_all_is_wanted_or_will_not_come_again(run, pulled, terminal, words):
    terminal(80)
    result = run("subscriptions", "pull", "billing", *words)
    assert "x" * 300 in result.stdout
    assert "--wide" not in result.stderr


def test_nothing_is_cut_in_a_pipe(run, pulled):
    assert "x" * 300 in run("subscriptions", "pull", "billing").stdout


def test_the_widest_cells_are_cut_first_and_no_more_than_needed():
    headings = ["NAME", "DATA", "LABELS"]
    rows = [["n" * 30, "d" * 100, "l" * 40]]
    assert output.fitted(headings, rows, 200) == rows
    name, data, labels = output.fitted(headings, rows, 120)[0]
    assert (name, labels) == ("n" * 30, "l" * 40)
    assert len(data) == 120 - 30 - 40 - 2 * output.GAP
    name, data, labels = output.fitted(headings, rows, 10)[0]
    assert (len(name), len(data), len(labels)) == (30, output.CUT_MIN, output.CUT_MIN)


def test_cells_of_wide_characters_and_of_many_lines():
    (row,) = output.fitted(["DATA"], [["日本" * 20 + "\nshort"]], 20)
    first, second = row[0].split("\n")
    assert first.endswith("…")
    assert len(first) == 10
    assert second == "short"


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ("0s", "0 s"),
        ("0.25s", "250 ms"),
        ("44.315549286s", "44 s"),
        ("59.7s", "1 min"),
        ("710.966638516s", "11 min 51 s"),
        ("3600s", "1 h"),
        ("3605s", "1 h"),
        ("100000s", "1 d 3 h"),
        ("soon", "soon"),
    ],
)
def test_ages(given, reported):
    assert output.shown_duration("subscription.uptime", given) == reported


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("messageRetentionDuration", "7d"),
        ("expirationPolicy.ttl", "7d"),
        ("options.defaultTtl", "7d"),
        ("labels.length", "604800s"),
    ],
)
def test_a_duration_that_was_set_is_shown_as_an_option_takes_it(path, shown):
    assert output.shown_duration(path, "604800s") == shown


def test_a_state_begins_with_what_waits(server, run, run_json):
    state = admin.SubscriptionState(subscription="projects/p/subscriptions/s", incarnation=7, backlog_messages=3)
    state.oldest_unacked_age.seconds = 711
    state.sources.add(source=1)
    state.options.early_delivery = True
    server.answers["Admin.GetSubscriptionState"] = state
    lines = run("subscriptions", "state", "s").stdout.splitlines()
    fields = [line.split()[0] for line in lines[2:]]
    assert fields[:4] == ["subscription", "backlogMessages", "backlogBytes", "oldestUnackedAge"]
    assert fields.index("incarnation") > fields.index("options.earlyDelivery")
    assert "11 min 51 s" in "\n".join(lines)
    assert run_json("subscriptions", "state", "s")["oldestUnackedAge"] == "711s"


def test_an_answer_without_rows_says_so_whatever_columns_could_be_left_out(capsys):
    output.print_answer("table", [], *output.without_empty_columns(["DATA", "REASON"], []))
    assert capsys.readouterr().err == "(none)\n"
    assert output.without_empty_columns(["DATA", "REASON"], [["a", ""]]) == (["DATA"], [["a"]])

"""Dead letters: what each command asks of the server, and what it prints."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import pytest

from syncpoint.wire.protobuf.messages import admin, pubsub

pytestmark = pytest.mark.shows("dead-letters")

WORK, LETTERS = "projects/p/subscriptions/work", "projects/p/subscriptions/letters"
DEAD = "projects/p/topics/dead"


def letter(data: str, reason: str = "Odd", **fields: Any) -> admin.DeadLetter:
    message = {"data": data.encode(), "message_id": f"7{data}", "attributes": {"n": "1"}}
    return admin.DeadLetter(message=message, reason=reason, source=WORK, delivery_attempts=5, **fields)


@pytest.fixture(autouse=True)
def resources(server):
    policy = {"dead_letter_topic": DEAD}
    server.answers["Subscriber.GetSubscription"] = pubsub.Subscription(name=WORK, dead_letter_policy=policy)
    server.answers["Publisher.ListTopicSubscriptions"] = pubsub.ListTopicSubscriptionsResponse(subscriptions=[LETTERS])


def failing(run, code, *words):
    result = run(*words)
    assert result.exit_code == code
    return result


def pages(server, method, *answers):
    left, asked = list(answers), []

    def answer(request):
        asked.append(type(request).FromString(request.SerializeToString()))
        return left.pop(0)

    server.answers[f"Admin.{method}"] = answer
    return asked


def test_letters_are_listed_by_pages_and_selected(server, run, run_json):
    response = admin.ListDeadLettersResponse
    asked = pages(
        server, "ListDeadLetters", response(letters=[letter("a")], next_page_token="x"),
        response(letters=[letter("b"), letter("c")], unknown=["chain 1: away"]),
    )  # fmt: skip
    words = [
        "--reason",
        "Odd",
        "--attribute",
        "region=e'u,x]y=2",
        "--filter",
        "n > 0 OR 1=1",
        "--since",
        "2026-11-21T03:00:00Z",
    ]
    result = run("dead-letters", "list", "--subscription", "work", *words)
    assert [line.split()[0] for line in result.stdout.splitlines()[2:]] == ["a", "b", "c"]
    assert "Not shown: chain 1: away" in result.stderr
    selection = asked[0].selection
    assert (selection.subscription, selection.source, selection.reason) == (LETTERS, WORK, "Odd")
    assert selection.filter == "(n > 0 OR 1=1) AND [region] = 'e''u' AND [x]]y] = '2'"
    assert selection.start_time.seconds == 1795230000
    assert asked[1].page_token == "x"


def test_a_limit_is_said(server, run):
    pages(server, "ListDeadLetters", admin.ListDeadLettersResponse(letters=[letter("a"), letter("b")]))
    result = run("dead-letters", "list", "--topic", "dead", "--limit", "1")
    assert "there are more; --limit is 1" in result.stderr
    assert "b" not in [line.split()[0] for line in result.stdout.splitlines()[2:]]


def test_letters_are_counted_by_reason(server, run, run_json):
    answer = admin.ListDeadLettersResponse(letters=[letter("a"), letter("b"), letter("c", "Late")])
    pages(server, "ListDeadLetters", answer, answer)
    words = ["dead-letters", "list", "--letters", "letters", "--group-by", "reason"]
    assert [line.split() for line in run(*words).stdout.splitlines()[2:]] == [["Odd", "2"], ["Late", "1"]]
    assert run_json(*words) == [{"reason": "Odd", "letters": 2}, {"reason": "Late", "letters": 1}]


def test_one_is_shown_whole(server, run):
    asked = pages(
        server, "ListDeadLetters", admin.ListDeadLettersResponse(letters=[letter("a", description="why")]),
        admin.ListDeadLettersResponse(),
    )  # fmt: skip
    shown = run("dead-letters", "show", "7a", "--subscription", "work").stdout
    assert list(asked[0].selection.message_ids) == ["7a"]
    for text in ("why", "message.data", "Odd", WORK):
        assert text in shown
    result = failing(run, 3, "dead-letters", "show", "7x", "--subscription", "work")
    assert "Letter not found" in result.stderr


def test_letters_are_published_again_page_by_page(server, run, monkeypatch):
    pauses = []
    monkeypatch.setattr("time.sleep", pauses.append)
    response = admin.RedriveDeadLettersResponse
    asked = pages(
        server, "RedriveDeadLetters",
        response(letters=[letter("a")], redriven=1, next_page_token="x", topic="T", time={"seconds": 5}),
        response(letters=[letter("b"), letter("c")], redriven=2, topic="T", time={"seconds": 9}),
    )  # fmt: skip
    result = run("dead-letters", "redrive", "--subscription", "work", "--rate", "2", "--letter-id", "7a,7b")
    assert "Redrove 3 letters to [T]." in result.stderr
    assert [(one.page_size, one.page_token, one.selection.end_time.seconds) for one in asked] == [
        (2, "", 0),
        (2, "x", 5),
    ]
    assert list(asked[0].selection.message_ids) == ["7a", "7b"]
    assert pauses == [0.5]


def test_a_dry_run_says_what_it_would_be(server, run, run_json):
    answer = admin.RedriveDeadLettersResponse(letters=[letter("a"), letter("b", "Late")], topic="T")
    asked = pages(server, "RedriveDeadLetters", answer, answer)
    result = run("dead-letters", "redrive", "--topic", "dead", "--to-topic", "orders", "--dry-run")
    assert "Would redrive 2 letters to [T]." in result.stderr
    assert asked[0].dry_run
    assert asked[0].topic == "projects/p/topics/orders"
    shown = run_json("dead-letters", "redrive", "--subscription", "work", "--dry-run")
    assert shown == {"topic": "T", "letters": {"Odd": 1, "Late": 1}, "redriven": 0, "failures": []}


def test_a_failure_ends_a_redrive(server, run):
    response = admin.RedriveDeadLettersResponse
    asked = pages(server, "RedriveDeadLetters", response(redriven=1, failures=["away"], next_page_token="x", topic="T"))
    result = failing(run, 1, "dead-letters", "redrive", "--subscription", "work")
    assert "away" in result.stderr
    assert "run the command again" in result.stderr
    assert len(asked) == 1


def test_what_says_too_little_is_refused(server, run):
    assert "--to-topic" in failing(run, 2, "dead-letters", "redrive", "--topic", "dead").stderr
    assert "Give --subscription" in failing(run, 2, "dead-letters", "list").stderr
    several = pubsub.ListTopicSubscriptionsResponse(subscriptions=[LETTERS, WORK])
    for answer, text in ((several, "choose with --letters"), (pubsub.ListTopicSubscriptionsResponse(), "create one")):
        server.answers["Publisher.ListTopicSubscriptions"] = answer
        assert text in failing(run, 1, "dead-letters", "list", "--subscription", "work").stderr
    server.answers["Subscriber.GetSubscription"] = pubsub.Subscription(name=WORK)
    assert "no dead-letter topic" in failing(run, 1, "dead-letters", "list", "--subscription", "work").stderr


def test_received_messages_are_given_up(server, run):
    failure = {"ack_id": "b", "invalid": True, "reason": "not out"}
    server.answers["Admin.DeadLetterMessages"] = admin.DeadLetterMessagesResponse(moved=1, failures=[failure])
    words = ["--ack-ids", "a,b", "--reason", "Odd", "--description", "d"]
    result = failing(run, 1, "subscriptions", "dead-letter", "work", *words)
    assert "Moved 1 message" in result.stderr
    assert "b: not out" in result.stderr
    _, request = server.calls[-1]
    assert (request.subscription, list(request.ack_ids), request.reason, request.description) == (
        WORK, ["a", "b"], "Odd", "d",
    )  # fmt: skip


def test_letters_are_counted_by_more_than_one_thing(server, run, run_json):
    letters = [letter("a", description="x"), letter("b", description="y"), letter("c", description="y")]
    pages(server, "ListDeadLetters", *[admin.ListDeadLettersResponse(letters=letters)] * 2)
    words = ["dead-letters", "list", "--letters", "letters", "--group-by", "description", "--group-by", "n"]
    assert [line.split() for line in run(*words).stdout.splitlines()[2:]] == [["y", "1", "2"], ["x", "1", "1"]]
    assert run_json(*words)[0] == {"description": "y", "n": "1", "letters": 2}


def test_a_dry_run_shows_what_an_action_changes(server, run, run_json):
    old, bad = letter("a"), letter("b")
    old.message.attributes.update({"draft": "1", "sys.DeadLetterReason": "Odd"})
    answer = admin.RedriveDeadLettersResponse(letters=[old, bad], topic="projects/p/topics/t")
    answer.published.add(attributes={"n": "2", "sys.RedriveCount": "1"})
    answer.published.add()
    asked = pages(server, "RedriveDeadLetters", answer, answer)
    words = ["dead-letters", "redrive", "--subscription", "work", "--action", "SET n = 2; REMOVE draft", "--dry-run"]
    shown = run(*words).stdout
    assert "n=2, draft removed" in shown
    assert "the action failed" in shown
    assert asked[0].action == "SET n = 2; REMOVE draft"
    assert run_json(*words)["changes"] == [
        {"letterId": "7a", "changed": "n=2, draft removed"},
        {"letterId": "7b", "changed": "the action failed"},
    ]


def test_one_letter_is_published_with_the_data_of_a_file(server, run, tmp_path):
    (tmp_path / "new").write_bytes(b"better")
    asked = pages(server, "RedriveDeadLetters", *[admin.RedriveDeadLettersResponse(redriven=1, topic="T")] * 2)
    words = ["dead-letters", "redrive", "--subscription", "work", "--data-from", str(tmp_path / "new")]
    assert "Redrove 1 letter" in run(*words, "--letter-id", "7a").stderr
    assert (dict(asked[0].data), list(asked[0].selection.message_ids)) == ({"7a": b"better"}, ["7a"])
    assert "Redrove 1 letter" in run(*words[:-1], "-", "--letter-id", "7a", input=b"typed").stderr
    assert dict(asked[1].data) == {"7a": b"typed"}
    for more in ([], ["--letter-id", "7a,7b"], ["--letter-id", "7a", "--map", "cat"]):
        assert "--data-from applies to one letter" in failing(run, 2, *words, *more).stderr


class Letters:
    """A server that has letters, in pages, and publishes what it is asked for."""

    def __init__(self, server: Any, *found: admin.DeadLetter, page: int = 2) -> None:
        self.found, self.page, self.asked = list(found), page, []
        self.published: dict[str, bytes] = {}
        self.failures: list[str] = []
        server.answers |= {"Admin.ListDeadLetters": self.listed, "Admin.RedriveDeadLetters": self.redriven}

    def _page(self, token: str) -> tuple[list[admin.DeadLetter], str]:
        at = int(token or 0)
        return self.found[at : at + self.page], str(at + self.page) if at + self.page < len(self.found) else ""

    def listed(self, request: Any) -> Any:
        assert request.selection.end_time.seconds == 5, "what becomes a letter again in the meantime is left alone"
        letters, token = self._page(request.page_token)
        return admin.ListDeadLettersResponse(letters=letters, next_page_token=token)

    def redriven(self, request: Any) -> Any:
        self.asked.append(type(request).FromString(request.SerializeToString()))
        letters, token = self._page(request.page_token)
        wanted = set(request.selection.message_ids)
        chosen = [one for one in letters if one.message.message_id in wanted] if wanted else letters
        if not request.dry_run:
            self.published |= {
                one.message.message_id: request.data.get(one.message.message_id, one.message.data) for one in chosen
            }
        return admin.RedriveDeadLettersResponse(
            letters=chosen, redriven=0 if request.dry_run else len(chosen), next_page_token=token, topic="T",
            time={"seconds": 5}, failures=self.failures if wanted else (),
        )  # fmt: skip


def command(tmp_path: Path, program: str) -> str:
    (tmp_path / "edit.py").write_text(f"import sys\ndata = sys.stdin.buffer.read()\n{program}\n")
    return f"{sys.executable} '{tmp_path / 'edit.py'}'"


UPPER = "sys.stdout.buffer.write(data.upper() if data != b'9' else data)"
FAILS = "sys.exit('cannot be read') if data == b'b' else sys.stdout.buffer.write(data.upper())"


def test_a_command_makes_new_data_of_each_letter(server, run, tmp_path):
    letters = Letters(server, *[letter(one) for one in "abc9"])
    words = ["dead-letters", "redrive", "--subscription", "work", "--map", command(tmp_path, UPPER)]
    dry = run(*words, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert not letters.published
    assert "NEW DATA" in dry.stdout
    assert ["7a", "a", "A"] in [line.split() for line in dry.stdout.splitlines()]
    letters.asked.clear()
    result = run(*words)
    assert "Redrove 4 letters to [T]." in result.stderr
    assert letters.published == {"7a": b"A", "7b": b"B", "7c": b"C", "79": b"9"}
    begun, *asked = letters.asked
    assert (begun.dry_run, begun.page_size) == (True, 1), "what would be refused is refused before a command is run"
    assert [(one.page_token, list(one.selection.message_ids), dict(one.data)) for one in asked] == [
        ("", ["7a", "7b"], {"7a": b"A", "7b": b"B"}), ("2", ["7c", "79"], {"7c": b"C"}),
    ]  # fmt: skip


def test_a_letter_that_the_command_fails_at_stays_with_later_ones_of_its_key(server, run, run_json, tmp_path):
    found = [letter(one) for one in "abcd"]
    for one in (found[1], found[2]):
        one.message.ordering_key = "k"
    letters = Letters(server, *found)
    words = ["dead-letters", "redrive", "--subscription", "work", "--map", command(tmp_path, FAILS)]
    result = failing(run, 1, *words)
    assert letters.published == {"7a": b"A", "7d": b"D"}
    assert "7b was not published" in result.stderr
    assert "ended with 1: cannot be read" in result.stderr
    assert "Redrove 2 letters" in result.stderr
    shown = run(*words, "--dry-run", "--format", "json").stdout
    assert base64.b64encode(b"A").decode() in shown


def test_what_the_server_refuses_ends_a_redrive_by_a_command(server, run, tmp_path):
    letters = Letters(server, *[letter(one) for one in "abcd"])
    letters.failures = ["away"]
    result = failing(run, 1, "dead-letters", "redrive", "--subscription", "work", "--map", command(tmp_path, UPPER))
    assert "away" in result.stderr
    assert len(letters.asked) == 2, "the first page, behind what asks whether it may be"


def test_large_data_goes_in_several_calls(server, run, tmp_path, monkeypatch):
    monkeypatch.setattr("syncpoint.programs.cli.dead_letter_redrives.DATA_BYTES", 1)
    letters = Letters(server, *[letter(one) for one in "abc"], page=3)
    run("dead-letters", "redrive", "--subscription", "work", "--map", command(tmp_path, UPPER))
    assert [list(one.data) for one in letters.asked[1:]] == [["7a"], ["7b"], ["7c"]]


@pytest.mark.parametrize(("given", "text"), [("'", "--map: No closing"), (" ", "name a command"), ("no-such-x", "run")])
def test_a_command_that_is_none_is_refused(server, run, given, text):
    Letters(server, letter("a"))
    result = failing(run, 2, "dead-letters", "redrive", "--subscription", "work", "--map", given)
    assert text in result.stderr

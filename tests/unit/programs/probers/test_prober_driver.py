"""The driver over scripts of a test: a prober that hangs, fails or has a bug holds up no other one."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import Unavailable
from syncpoint.front.client.client import Target
from syncpoint.programs.probers import prober_driver
from syncpoint.programs.probers.board_page import BoardPage
from syncpoint.programs.probers.judgement import ProbeVerdict
from syncpoint.programs.probers.probe_history import SentMessage
from syncpoint.programs.probers.probe_names import SPARE_S, ProbeNames, expired
from syncpoint.programs.probers.probe_run import ProbedEndpoint, ProbeRun, ProbeSurroundings, StepFailed
from syncpoint.programs.probers.prober_board import ProberBoard
from syncpoint.programs.probers.prober_driver import ProberDriver
from syncpoint.programs.probers.prober_table import PROBERS, Measure
from syncpoint.programs.probers.push_receiver import PushReceiver
from syncpoint.watch.metrics.prober_families import FAMILIES
from syncpoint.wire.protobuf.messages import pubsub

pytestmark = pytest.mark.shows("probers")


class NoChannel:
    """A connection to nobody."""

    async def unary(self, *_: Any, **__: Any) -> bytes:
        raise Unavailable("nobody is there")

    async def close(self) -> None:
        pass


NOWHERE = ProbedEndpoint("a:1", Target(NoChannel))  # type: ignore[arg-type]
ELSEWHERE = ProbedEndpoint("b:1", Target(NoChannel))  # type: ignore[arg-type]


async def good(run: ProbeRun) -> None:
    for step in run.spec.timed:
        run.history.took(step.name, 0.1)


async def refused(run: ProbeRun) -> None:
    raise StepFailed("Publish: INTERNAL: no")


async def hanging(run: ProbeRun) -> None:
    await asyncio.Event().wait()


async def mistaken(run: ProbeRun) -> None:
    raise KeyError("n")


def driver(
    monkeypatch: pytest.MonkeyPatch, scripts: dict[str, Any], deadline_s: float = 0.02, **options: Any
) -> tuple[ProberDriver, ProberBoard]:
    monkeypatch.setattr(prober_driver, "SCRIPTS", {one.name: scripts.get(one.name, good) for one in PROBERS})
    around = ProbeSurroundings("p", (NOWHERE, ELSEWHERE), deadline_s, patience=0.001)
    board = ProberBoard(PROBERS, ["a:1", "b:1"], patience=1000.0)
    return ProberDriver(PROBERS, around, board, **options), board


def verdicts(board: ProberBoard, endpoint: str = "a:1") -> dict[str, list[ProbeVerdict]]:
    found = board.entries.values()
    return {one.prober: [metric.verdict for metric in one.findings] for one in found if one.endpoint == endpoint}


def test_one_that_fails_in_any_way_holds_up_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober_driver, "judge", lambda spec, history, patience: JUDGE(spec, history, 1.0))
    made, board = driver(monkeypatch, {"P2": refused, "P5": hanging, "P8": mistaken})
    asyncio.run(made.once())
    broken = [ProbeVerdict.UNEXPECTED, ProbeVerdict.UNKNOWN, ProbeVerdict.UNKNOWN]
    fine = [ProbeVerdict.EXPECTED] * 3
    for endpoint in ("a:1", "b:1"):
        found = verdicts(board, endpoint)
        assert found == {one.name: broken if one.name in ("P2", "P5", "P8") else fine for one in PROBERS}
    texts = {prober: one.text for prober, _, one in board.unexpected}
    assert texts["P2"] == "Publish: INTERNAL: no"
    assert texts["P5"].startswith("the run took longer than ")
    assert texts["P8"] == "a bug in the prober: KeyError('n')"


JUDGE = prober_driver.judge


def test_it_goes_on_and_deletes_what_was_made_when_it_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned: list[str] = []
    ran = asyncio.Event()

    async def clean_up(run: ProbeRun) -> None:
        cleaned.append(run.spec.name)

    async def counted(run: ProbeRun) -> None:
        if board.entries["P1", "a:1"].runs == 2:
            ran.set()

    monkeypatch.setattr(ProbeRun, "clean_up", clean_up)
    made, board = driver(monkeypatch, {"P1": counted, "P5": hanging}, deadline_s=60.0)

    async def for_a_while() -> None:
        task = asyncio.create_task(made.forever(0.01))
        await ran.wait()
        assert "P5" not in cleaned
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(for_a_while())
    assert cleaned.count("P1") >= 2
    assert cleaned.count("P5") == 2, "at each endpoint"


def test_the_board_is_shown_as_metrics_and_as_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made, board = driver(monkeypatch, {"P2": refused}, deadline_s=1.0)
    file = tmp_path / "probers.json"
    page = BoardPage(board, file)
    made._on_change = page.renew
    assert json.loads(file.read_text())["asExpected"] is False, "nothing is known yet"
    asyncio.run(made.once())
    port = page.serve("127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/probers.json", timeout=10) as answer:
            assert answer.read() == file.read_bytes()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10)
    finally:
        page.close()
    assert 'syncpoint_prober_as_expected{prober="P2",endpoint="b:1",metric="success"} 0.0' in text
    assert 'syncpoint_prober_as_expected{prober="P2",endpoint="b:1",metric="duration"}' not in text
    assert 'syncpoint_prober_judgements_total{prober="P2",endpoint="a:1",metric="duration",verdict="unknown"} 1' in text
    found = json.loads(file.read_text())["probers"]
    assert len(found) == 2 * len(PROBERS)
    (entry,) = [one for one in found if (one["prober"], one["endpoint"]) == ("P2", "a:1")]
    assert [one["name"] for one in entry["metrics"]] == [f"P2.{measure}" for measure in Measure]
    assert entry["failures"][0]["text"] == "Publish: INTERNAL: no"
    assert [path.name for path in tmp_path.iterdir()] == ["probers.json"]


def test_every_family_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    async def spoiled(run: ProbeRun) -> None:
        await good(run)
        run.history.sent.append(SentMessage(0, b"", "", 0.0, answered=True))
        run.note_arrival(pubsub.PubsubMessage(message_id="1"))

    made, board = driver(monkeypatch, {"P1": spoiled}, deadline_s=1.0)
    asyncio.run(made.once())
    board.leftovers_removed = 2
    rows = board.samples().rows
    moved = {name for name, found in rows.items() if any(one.value or one.histogram for one in found)}
    assert moved == {one.name for one in FAMILIES}
    wrong = {one.labels[2]: one.value for one in rows["syncpoint_prober_wrong_total"] if one.labels[1] == "a:1"}
    assert wrong == {"lost": 1, "foreign": 1, "unnamed": 1}


def test_names_say_when_they_are_over() -> None:
    names = ProbeNames("p", "P10", "abcdef-12", 1_000.9)
    identifier = names.made("subscriptions", "0-1").rpartition("/")[2]
    assert identifier == f"probe-p10-abcdef-12-until-{1_000 + SPARE_S}-0-1"
    assert not expired(identifier, 1_000 + SPARE_S)
    assert expired(identifier, 1_001 + SPARE_S)
    for other in ("probe-p1", "probe-p10-1", "probe-p10-copied", "until-1", "probe-p1-xyz-1-until-1", "orders"):
        assert not expired(other, 1e12)


def test_pushes_go_to_their_run_and_to_no_other_one() -> None:
    came: list[tuple[Any, str]] = []
    receiver = PushReceiver("127.0.0.1", 0)

    def status(url: str, body: bytes) -> int:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body), timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    body = {"message": {"data": "eA==", "attributes": {"n": "1"}, "messageId": "7"}, "subscription": "s"}
    try:
        with receiver.of_run("r-1", lambda message, subscription: came.append((message, subscription))) as url:
            assert status(url, json.dumps(body).encode()) == 204
            for bad in (b"", b"[]", b"{}", b'{"message": 1}', b'{"message": {"data": "!", "messageId": "1"}}'):
                assert status(url, bad) == 400
        assert status(url, json.dumps(body).encode()) == 404, "the run is over"
    finally:
        receiver.close()
    ((message, subscription),) = came
    assert (message.data, dict(message.attributes), message.message_id, subscription) == (b"x", {"n": "1"}, "7", "s")

"""The loop around the machine: looks, notifications that arrive by each way, bounded retries, and questions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import socketserver
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument, NotFound
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.base.runtime.random import SystemRandom
from syncpoint.watch.metrics.exposition import written
from syncpoint.watch.metrics.family import Samples
from syncpoint.watch.metrics.family_table import FAMILIES
from syncpoint.watch.monitor.monitor_admin import MonitorAdmin
from syncpoint.watch.monitor.monitor_driver import FILE, Monitor
from syncpoint.watch.monitor.monitor_settings import parse_monitor
from syncpoint.watch.monitor.scrape_sources import TextSource
from syncpoint.wire.protobuf.messages import admin

pytestmark = pytest.mark.shows("monitor")


class Page:
    """A process that says what a test has it say."""

    def __init__(self, chains: int = 1) -> None:
        self.full, self.published, self.chains = 0, 0, chains

    async def text(self) -> bytes:
        samples = Samples(FAMILIES)
        for chain in range(self.chains):
            samples.put("syncpoint_log_full", self.full, str(chain))
        for topic in ("a", "b"):
            samples.put("syncpoint_topic_messages_total", self.published, "p", topic)
        return written(samples)


@contextlib.contextmanager
def listening(server: socketserver.BaseServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server.server_address[1]  # type: ignore[misc]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def webhook(got: list[Any], codes: list[int]) -> HTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(codes.pop(0) if codes else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    return HTTPServer(("127.0.0.1", 0), Handler)


def mail_server(got: list[str]) -> socketserver.TCPServer:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 test\r\n")
            data = False
            for line in self.rfile:
                got.append(line.decode().rstrip())
                if data:
                    data = line != b".\r\n"
                    if not data:
                        self.wfile.write(b"250 taken\r\n")
                elif line.upper().startswith(b"DATA"):
                    data = True
                    self.wfile.write(b"354 go on\r\n")
                elif line.upper().startswith(b"QUIT"):
                    self.wfile.write(b"221 bye\r\n")
                    return
                else:
                    self.wfile.write(b"250 fine\r\n")

    return socketserver.TCPServer(("127.0.0.1", 0), Handler)


async def until(done: Any) -> None:
    async with asyncio.timeout(30):
        while not done():
            await asyncio.sleep(0.01)


def test_a_page_arrives_by_webhook_mail_and_command_and_is_tried_again(tmp_path: Path) -> None:
    asyncio.run(_a_page_arrives(tmp_path))


async def _a_page_arrives(tmp_path: Path) -> None:
    posts: list[Any] = []
    mails: list[str] = []
    ran = tmp_path / "ran.json"
    code = f"import pathlib, sys; pathlib.Path({str(ran)!r}).write_text(sys.stdin.read())"
    with listening(webhook(posts, [500, 500])) as port, listening(mail_server(mails)) as mail_port:
        settings = parse_monitor(
            {
                "people": {
                    "ana": {"webhook": f"http://127.0.0.1:{port}/hook"},
                    "ben": {"email": "ben@example.com", "command": [sys.executable, "-c", code]},
                },
                "mail": {"host": "127.0.0.1", "port": mail_port, "from": "us@example.com", "security": "none"},
                "on_call": {"sites": [{"name": "here", "people": ["ana"]}], "last": ["ben"]},
            }
        )
        page, clock = Page(), ManualClock()
        monitor = Monitor(
            settings,
            tmp_path,
            lambda: [TextSource("node", page.text, fresh=True)],
            clock,
            SystemRandom(),
            look_s=3600.0,
            pauses_s=(0.01, 0.01),
        )
        await monitor.start()
        try:
            page.full = 1
            clock.advance(10)
            await monitor.look()
            await until(lambda: len(posts) == 3)  # two attempts failed
            assert {(one["rule"], one["why"], one["to"]) for one in posts} == {("DisksFull", "fired", "ana")}
            assert posts[0]["runbook"].endswith("#disksfull")
            clock.advance(300)
            await monitor.look()
            await until(lambda: "." in mails and ran.exists() and ran.read_text().endswith("}"))
            assert "Subject: [Page] DisksFull" in "".join(mails)
            assert json.loads(ran.read_text())["why"] == "passed on"
            (alert,) = (await MonitorAdmin(monitor).list_alerts(admin.ListAlertsRequest())).alerts
            assert list(alert.notified) == ["ana", "ben"]
            assert alert.level == 1
        finally:
            await monitor.stop()


def test_alerts_of_a_rule_that_begin_together_are_one_message(tmp_path: Path) -> None:
    asyncio.run(_alerts_together(tmp_path))


async def _alerts_together(tmp_path: Path) -> None:
    posts: list[Any] = []
    with listening(webhook(posts, [])) as port:
        settings = parse_monitor(
            {
                "people": {"ana": {"webhook": f"http://127.0.0.1:{port}/hook"}},
                "on_call": {"sites": [{"name": "here", "people": ["ana"]}]},
            }
        )
        page, clock = Page(chains=3), ManualClock()
        sources = [TextSource("node", page.text, fresh=True)]
        monitor = Monitor(settings, tmp_path, lambda: sources, clock, SystemRandom(), look_s=3600.0)
        await monitor.start()
        try:
            page.full = 1
            await monitor.look()
            await until(lambda: len(posts) == 1)
            (post,) = posts
            assert (post["rule"], post["severity"]) == ("DisksFull", "page")
            assert post["summary"].endswith("; and 2 more")
            assert {one["labels"]["chain"] for one in post["alerts"]} == {"0", "1", "2"}
            answer = await MonitorAdmin(monitor).list_alerts(admin.ListAlertsRequest())
            assert post["acknowledge_with"].split()[3:] == [one["alert"] for one in post["alerts"]]
            assert {one.alert: list(one.notified) for one in answer.alerts} == {
                one["alert"]: ["ana"] for one in post["alerts"]
            }
        finally:
            await monitor.stop()
    assert len(posts) == 1


def test_questions_are_answered_and_bad_ones_name_their_field(tmp_path: Path) -> None:
    asyncio.run(_questions(tmp_path))


async def _questions(tmp_path: Path) -> None:
    page, clock = Page(), ManualClock()
    (tmp_path / FILE).write_bytes(b"this is no database" * 1000)  # it is put aside, and a new one is begun
    monitor = Monitor(
        parse_monitor({}),
        tmp_path,
        lambda: [TextSource("node", page.text, {"process": "node"}, fresh=True)],
        clock,
        SystemRandom(),
        look_s=3600.0,
    )
    await monitor.start()
    asked = MonitorAdmin(monitor)
    try:
        for _ in range(3):
            page.published += 50
            clock.advance(10)
            await monitor.look()
        request = admin.QueryHistoryRequest(family="syncpoint_topic_messages_total", group_by=["topic", "process"])
        request.end_time.FromSeconds(clock.time_ns() // 10**9 + 10)
        found = await asked.query_history(request)
        assert [dict(one.labels) for one in found.series] == [{"topic": x, "process": "node"} for x in "ab"]
        assert {value for one in found.series for value in one.values if not math.isnan(value)} == {5.0}
        assert (found.kind, found.unit) == ("counter", "1/s")
        only = admin.QueryHistoryRequest(family=request.family, labels=["topic=a"], end_time=request.end_time)
        (series,) = (await asked.query_history(only)).series
        assert max(value for value in series.values if not math.isnan(value)) == 5.0
        assert len((await asked.list_slis(admin.ListSlisRequest())).slis) == 10
        assert len((await asked.list_slos(admin.ListSlosRequest())).slos) == 10
        assert (await asked.get_sla_report(admin.GetSlaReportRequest())).lines[0].state == admin.Sli.NO_DATA
        for wrong, field in (
            (admin.QueryHistoryRequest(), "family"),
            (admin.QueryHistoryRequest(family="x", labels=["a"]), "labels"),
            (admin.QueryHistoryRequest(family="x", quantile=1.5), "quantile"),
            (admin.QueryHistoryRequest(family="x", start_time={"seconds": 20}, end_time={"seconds": 10}), "start_time"),
        ):
            with pytest.raises(InvalidArgument, match=field):
                await asked.query_history(wrong)
        with pytest.raises(NotFound):
            await asked.query_history(admin.QueryHistoryRequest(family="nothing"))
        with pytest.raises(NotFound):
            await asked.acknowledge_alert(admin.AcknowledgeAlertRequest(alert="none"))
        silence = admin.Silence(rule="Disk*", by="ana")
        silence.end_time.FromSeconds(clock.time_ns() // 10**9 + 60)
        made = await asked.create_silence(admin.CreateSilenceRequest(silence=silence))
        assert [one.silence for one in (await asked.list_silences(admin.ListSilencesRequest())).silences] == [
            made.silence
        ]
        await asked.delete_silence(admin.DeleteSilenceRequest(silence=made.silence))
        assert not (await asked.list_silences(admin.ListSilencesRequest())).silences
    finally:
        await monitor.stop()
    with pytest.raises(FailedPrecondition, match=r"cluster\.yaml"):
        await MonitorAdmin(None).list_slis(admin.ListSlisRequest())


def test_what_is_urgent_does_not_wait_for_the_next_look(tmp_path: Path) -> None:
    asyncio.run(_urgent(tmp_path))


async def _urgent(tmp_path: Path) -> None:
    looks, urgent = 0, 0

    async def text() -> bytes:
        nonlocal looks
        looks += 1
        return written(Samples(FAMILIES))

    sources = [TextSource("node", text, {}, True)]
    clock = ManualClock(1_790_000_000 * 10**9)
    monitor = Monitor(
        parse_monitor({}), tmp_path, lambda: sources, clock, SystemRandom(), look_s=3600.0, urgent=lambda: urgent
    )
    await monitor.start()
    try:
        await until(lambda: looks == 1)
        urgent = 1
        await until(lambda: looks == 2)
        asked = 0

        def again() -> int:
            nonlocal asked
            asked += 1
            return urgent

        monitor._urgent = again
        await until(lambda: asked == 2)
        assert looks == 2, "of the same it was told already"
        urgent = 2
        await until(lambda: looks == 3)
    finally:
        await monitor.stop()

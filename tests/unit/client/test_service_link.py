"""Moves between addresses: which channels are used, what ends calls under way, and when an address is checked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from syncpoint.base.model.errors import Code, InvalidArgument, NotFound, SyncpointError, Unavailable
from syncpoint.client.service_link import Connecting, ServiceLink
from syncpoint.wire.protobuf import methods


class Place:
    """The channel of an address that answers as it is set."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.error: SyncpointError | None = None
        self.silent = False
        self.closed = asyncio.Event()
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked: list[str] = []

    async def unary(self, path: str, message: bytes, *, metadata: Any = (), timeout: float | None = None) -> bytes:
        self.asked.append(path)
        if self.silent and path == methods.HEALTH.Check:
            raise SyncpointError(Code.DEADLINE_EXCEEDED, "silent")
        if self.error is not None:
            raise self.error
        if path != methods.HEALTH.Check:
            waits = [asyncio.ensure_future(one.wait()) for one in (self.answers, self.closed)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for one in waits:
                one.cancel()
            if self.closed.is_set():
                raise Unavailable("closed")
            return self.name.encode()
        return b""

    async def close(self) -> None:
        self.closed.set()


class Places:
    """Channels by address, made anew after they were closed."""

    def __init__(self) -> None:
        self.made: dict[str, Place] = {}

    def connect(self, address: str) -> Any:
        if address not in self.made or self.made[address].closed.is_set():
            self.made[address] = Place(address)
        return self.made[address]


Work = Callable[[ServiceLink, Places], Coroutine[Any, Any, None]]


def linked(work: Work, *addresses: str, **options: Any) -> None:
    async def run() -> None:
        places = Places()
        link = ServiceLink(Connecting(addresses or ("a", "b"), connect=places.connect, **options))
        try:
            async with asyncio.timeout(20):
                await work(link, places)
        finally:
            await link.close()

    asyncio.run(run())


def test_an_address_that_is_unavailable_is_left_and_calls_are_not_made_again_by_themselves():
    async def work(link: ServiceLink, places: Places) -> None:
        assert await link.call("/m", b"", 1.0) == b"a"
        places.made["a"].error = Unavailable("gone")
        with pytest.raises(SyncpointError, match="gone"):
            await link.call("/m", b"", 1.0)
        assert link.present == "b"
        assert await link.call("/m", b"", 1.0) == b"b"
        assert places.made["b"].asked == ["/m"]

    linked(work)


def test_trouble_is_logged_once_until_something_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def work(link: ServiceLink, places: Places) -> None:
        for _ in range(3):
            link.trouble("the topic", Unavailable("gone"))
        await link.call("/m", b"", 1.0)
        link.trouble("the topic", Unavailable("gone"))
        places.made["a"].error = Unavailable("gone")
        with pytest.raises(SyncpointError):
            await link.call("/m", b"", 1.0)

    linked(work)
    text = "the topic: UNAVAILABLE: gone"
    assert [one.getMessage() for one in caplog.records] == [text, text, "a is left for b: UNAVAILABLE: gone"]


def test_other_failures_move_nothing():
    async def work(link: ServiceLink, places: Places) -> None:
        places.connect("a").error = NotFound("x")
        with pytest.raises(NotFound):
            await link.call("/m", b"", 1.0)
        assert link.present == "a"

    linked(work)


def test_a_switch_waits_for_what_is_under_way_and_new_calls_go_to_the_new_address():
    async def work(link: ServiceLink, places: Places) -> None:
        first = places.connect("a")
        first.answers.clear()
        under_way = asyncio.create_task(link.call("/m", b"", 9.0))
        await asyncio.sleep(0)
        switching = asyncio.create_task(link.switch_to("b"))
        await asyncio.sleep(0)
        assert await link.call("/m", b"", 1.0) == b"b"
        assert not switching.done()
        first.answers.set()
        assert await under_way == b"a"
        await switching
        assert first.closed.is_set()
        assert await link.call("/m", b"", 1.0) == b"b"

    linked(work)


def test_a_switch_ends_what_takes_too_long():
    async def work(link: ServiceLink, places: Places) -> None:
        places.connect("a").answers.clear()
        under_way = asyncio.create_task(link.call("/m", b"", 9.0))
        await asyncio.sleep(0)
        await link.switch_to("b", drain_s=0.01)
        with pytest.raises(SyncpointError, match="closed"):
            await under_way
        assert link.present == "b"
        with pytest.raises(ValueError, match="none of the addresses"):
            await link.switch_to("c")

    linked(work)


def test_a_silent_address_is_left_when_its_check_is_not_answered_and_calls_there_end():
    async def work(link: ServiceLink, places: Places) -> None:
        first = places.connect("a")
        first.answers.clear()
        first.silent = True
        with pytest.raises(SyncpointError, match="closed"):
            await link.call("/m", b"", 60.0)
        assert link.present == "b"
        assert methods.HEALTH.Check in first.asked

    linked(work, check_s=0.02)


def test_a_slow_address_that_answers_checks_is_kept():
    async def work(link: ServiceLink, places: Places) -> None:
        first = places.connect("a")
        first.answers.clear()
        under_way = asyncio.create_task(link.call("/m", b"", 60.0))
        while first.asked.count(methods.HEALTH.Check) < 2:
            await asyncio.sleep(0.005)
        first.answers.set()
        assert await under_way == b"a"

    linked(work, check_s=0.02)


def test_the_first_address_is_used_again_once_it_answers_where_it_is_preferred():
    async def work(link: ServiceLink, places: Places) -> None:
        link.choice.failed("a", -100.0)
        assert link.present == "b"
        while link.present != "a":
            await asyncio.sleep(0.005)
        assert await link.call("/m", b"", 1.0) == b"a"

    linked(work, check_s=0.02, prefer_first=True)


def test_where_the_service_is_comes_from_the_environment_where_it_is_not_given(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("SYNCPOINT_ADDRESSES", "PUBSUB_EMULATOR_HOST", "SYNCPOINT_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    assert Connecting.of(None).addresses == ("127.0.0.1:8085",)
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "h:1")
    assert Connecting.of(None).addresses == ("h:1",)
    monkeypatch.setenv("SYNCPOINT_ADDRESSES", "h:1, g:2")
    assert Connecting.of(None).addresses == ("h:1", "g:2")
    assert Connecting.of("i:3").addresses == ("i:3",)
    token = tmp_path / "token"
    token.write_text("secret")
    monkeypatch.setenv("SYNCPOINT_CREDENTIALS", str(token))
    with pytest.raises(InvalidArgument, match="in the clear"):
        Connecting.of(None)
    local = Connecting.of(["localhost:1"])
    assert local.metadata() == ((b"authorization", b"Bearer secret"),)
    token.unlink()
    with pytest.raises(SyncpointError, match="cannot be read"):
        local.metadata()
    with pytest.raises(InvalidArgument, match="HOST:PORT"):
        Connecting.of("host:port")

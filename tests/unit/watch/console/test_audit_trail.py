"""Logs of several processes as one: every line once, newest first, whose they are, and who did not answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from syncpoint.base.model.errors import InvalidArgument, Unavailable
from syncpoint.base.runtime.clock import ManualClock
from syncpoint.catalog.access.audit import AuditLog
from syncpoint.catalog.access.audit_reading import AuditReading
from syncpoint.watch.console.audit_trail import PAGE_MAX, ReadAudit, page_of, verified
from syncpoint.wire.protobuf.messages import internal


def written(folder: Path, turns: list[int], read_max: int) -> dict[str, ReadAudit]:
    """Three processes that write in these turns, a second after each other; every seventh line is a refusal."""
    folder.mkdir(exist_ok=True)
    clock = ManualClock()
    logs = [AuditLog(folder / f"audit.p{number}.log", clock, bytes_max=4000) for number in range(3)]
    for turn, number in enumerate(turns):
        clock.advance(1.0)
        logs[number].note("user:a@b", "peer", "/s/M", "x", f"r{turn}", turn % 7 != 0, 1, "")
        logs[number].flush()
    for log in logs:
        log.close()
    return {
        f"p{number}": AuditReading(folder / f"audit.p{number}.log", read_max=read_max).answer for number in range(3)
    }


async def everything(logs: Mapping[str, ReadAudit], **asked: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        page = await page_of(lambda: logs, QueryParams({**asked, "pageToken": token}))
        assert len(page["entries"]) <= PAGE_MAX
        found += page["entries"]
        if not (token := page["nextPageToken"]):
            return found


@settings(max_examples=15, deadline=None)
@given(turns=st.lists(st.integers(0, 2), max_size=60), read_max=st.sampled_from([1, 4, 1000]))
def test_every_line_of_every_process_is_shown_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, turns: list[int], read_max: int
) -> None:
    logs = written(tmp_path_factory.mktemp("logs"), turns, read_max)
    found = asyncio.run(everything(logs))
    said = [one["resource"] for one in found if one.get("resource")]
    assert said == [f"r{turn}" for turn in reversed(range(len(turns)))]
    assert len(found) == len(turns) + 3  # each began once
    assert [one["process"] for one in found if one.get("resource")] == [f"p{number}" for number in reversed(turns)]
    refused = asyncio.run(everything(logs, outcome="refused"))
    assert [one["resource"] for one in refused] == [f"r{n}" for n in reversed(range(len(turns))) if n % 7 == 0]


def test_who_does_not_answer_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    async def silent(asked: internal.AuditRequest) -> internal.AuditResponse:
        raise Unavailable("p3 is away")

    logs = {**written(tmp_path, [0, 1, 2] * 100, 1000), "p3": silent}

    def page(**asked: str) -> dict[str, Any]:
        return asyncio.run(page_of(lambda: logs, QueryParams(asked)))

    found = page()
    assert (len(found["entries"]), found["processes"]) == (PAGE_MAX, ["p0", "p1", "p2", "p3"])
    assert found["unknown"] == ["p3: UNAVAILABLE: p3 is away"]
    assert len(asyncio.run(everything(logs, process="p1"))) == 101
    chains = asyncio.run(verified(lambda: logs))
    assert [(one["process"], one["lines"], one["broken"]) for one in chains["logs"]] == [
        (f"p{number}", 101, "") for number in range(3)
    ]
    assert chains["unknown"] == found["unknown"]
    with pytest.raises(InvalidArgument, match="outcome"):
        page(outcome="maybe")
    for token in ("nonsense", json.dumps([1])):
        with pytest.raises(InvalidArgument, match="pageToken"):
            page(pageToken=token)

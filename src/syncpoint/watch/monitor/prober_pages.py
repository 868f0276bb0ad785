"""What prober programs know beyond their metrics: the texts of judgements and the newest failures, read when asked for.

Place: under `ListProbers`. A program is known as one by its page of metrics, which is among the monitor's targets;
the board that it shows is beside that page, as `probers.json`.
Promise: a program that does not answer, or answers something else, is named as unknown; the others are shown.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from syncpoint.wire.protobuf.messages import admin

PREFIX: Final = "syncpoint_prober_"
BOARD: Final = "probers.json"
_METRICS: Final = "/metrics"
_VERDICTS: Final = {
    "unknown": admin.ProberMetric.UNKNOWN,
    "expected": admin.ProberMetric.EXPECTED,
    "unexpected": admin.ProberMetric.UNEXPECTED,
}


def board_of(url: str) -> str:
    """The address of the board beside a page of metrics."""
    return f"{url.partition('?')[0].removesuffix(_METRICS)}/{BOARD}"


async def boards(
    programs: Iterable[tuple[str, str]], fetch: Callable[[str], Awaitable[bytes]]
) -> admin.ListProbersResponse:
    """Fetch the boards of all prober programs, given as (name, address of its metrics)."""
    response = admin.ListProbersResponse()
    named = list(programs)
    answers = await asyncio.gather(*(fetch(board_of(url)) for _, url in named), return_exceptions=True)
    for (name, url), answer in zip(named, answers, strict=True):
        if isinstance(answer, BaseException):
            if not isinstance(answer, OSError):  # of urllib, of timeouts
                raise answer
            response.unknown.append(f"{name} does not answer at {board_of(url)}: {answer}")
            continue
        try:
            found = [_prober(name, one) for one in json.loads(answer)["probers"]]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            response.unknown.append(f"{name} serves no prober results at {board_of(url)}: {error!r}")
        else:
            response.probers.extend(found)
    return response


def _prober(process: str, one: Mapping[str, Any]) -> admin.Prober:
    made = admin.Prober(
        prober=one["prober"],
        title=one["title"],
        planes=one["planes"],
        endpoint=one["endpoint"],
        process=process,
        runs=one["runs"],
        steps=one["steps"],
    )
    if one["lastRun"] is not None:
        made.last_run.FromDatetime(datetime.fromisoformat(one["lastRun"]))
    for metric in one["metrics"]:
        made.metrics.add(
            name=metric["name"],
            measure=metric["measure"],
            verdict=_VERDICTS.get(metric["verdict"], admin.ProberMetric.UNKNOWN),
            value=metric["value"],
            limit=metric["limit"],
            text=metric["text"],
        )
    for failure in one["failures"]:
        made.failures.add(text=failure["text"]).time.FromDatetime(datetime.fromisoformat(failure["time"]))
    return made

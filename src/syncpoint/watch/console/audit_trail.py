"""The audit logs of a whole server or cluster as one: each process keeps a file of its own, this reads all of them.

Place: under pages of the console; the processes are asked by what `node` hands in.
Promise: the answer names the process of each log, and processes that keep none or do not answer: their lines are
missing, not absent. Lines are shown by their times, those of one process in their order; clocks of machines may differ.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from starlette.datastructures import QueryParams

from syncpoint.base.model.errors import InvalidArgument, SyncpointError
from syncpoint.wire.protobuf.messages import internal

PERMISSION: Final = "syncpoint.audit.read"
PAGE_MAX: Final = 200
OUTCOMES: Final = ("", "allowed", "refused")
_NONE_LEFT: Final = 0

ReadAudit = Callable[[internal.AuditRequest], Awaitable[internal.AuditResponse]]
AuditLogs = Callable[[], Mapping[str, ReadAudit]]
"""Of each process that clients call, by its name, how its log is read."""


async def page_of(logs: AuditLogs, query: QueryParams) -> dict[str, Any]:
    """`entries`, newest first; `processes` whose logs they are of; `unknown`; `nextPageToken`. Raises
    `InvalidArgument`."""
    begun = _position(query.get("pageToken", ""))
    asked = internal.AuditRequest(lines_max=PAGE_MAX, outcome=query.get("outcome", ""))
    if asked.outcome not in OUTCOMES:
        raise InvalidArgument("outcome", "outcome must be allowed or refused, or omitted.")
    for field in ("who", "method", "resource", "since", "until"):
        setattr(asked, field, query.get(field, ""))
    only = query.get("process", "")
    every = {name: read for name, read in logs().items() if only in ("", name)}
    answers, unknown = await _gathered(
        {name: read for name, read in every.items() if begun.get(name) != _NONE_LEFT}, asked, begun
    )
    horizon = max((one.read_time for one in answers.values() if one.next), default="")
    found = [one for name, answer in answers.items() for one in _timed(name, answer.lines, horizon)]
    found.sort(key=lambda one: one[0], reverse=True)
    shown = [one for one in found if one[0] >= horizon][:PAGE_MAX]
    left = {name: begun[name] for name in every if name in begun}
    for name, one in answers.items():
        mine = [entry for _, process, entry in shown if process == name]
        whole = len(mine) == len(one.lines)
        if whole or mine:
            numbers = [entry["n"] for entry in mine if "n" in entry]
            left[name] = numbers[-1] if numbers and not whole else one.next
    more = any(left.get(name) != _NONE_LEFT for name in answers)
    return {
        "entries": [{**entry, "process": name} for _, name, entry in shown],
        "processes": sorted(every),
        "unknown": unknown,
        "nextPageToken": json.dumps(left) if more else "",
    }


async def verified(logs: AuditLogs) -> dict[str, Any]:
    """Check for each process whether its audit log is one unbroken chain."""
    answers, unknown = await _gathered(logs(), internal.AuditRequest(verify=True), {})
    found = [
        {"process": name, "file": one.file, "lines": one.verified, "hash": one.hash, "broken": one.broken}
        for name, one in sorted(answers.items())
    ]
    return {"logs": found, "unknown": unknown}


async def _gathered(
    logs: Mapping[str, ReadAudit], asked: internal.AuditRequest, begun: Mapping[str, int]
) -> tuple[dict[str, internal.AuditResponse], list[str]]:
    async def one(name: str, read: ReadAudit) -> internal.AuditResponse | str:
        request = internal.AuditRequest()
        request.CopyFrom(asked)
        if name in begun:
            request.before = begun[name]
        try:
            return await read(request)
        except (SyncpointError, OSError) as error:
            return f"{name}: {error}"

    answers = await asyncio.gather(*(one(name, read) for name, read in logs.items()))
    named = dict(zip(logs, answers, strict=True))
    known = {name: answer for name, answer in named.items() if isinstance(answer, internal.AuditResponse)}
    return known, [answer for answer in named.values() if isinstance(answer, str)]


def _timed(process: str, lines: Iterable[bytes], otherwise: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The lines of a process, each with its time; one that cannot be read stands beside the one before it."""
    time = otherwise
    for entry in map(_entry, lines):
        time = str(entry.get("time", "")) or time
        yield time, process, entry


def _entry(line: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError):
        return {"broken": True}


def _position(token: str) -> dict[str, int]:
    try:
        found = json.loads(token or "{}")
        return {str(name): int(value) for name, value in found.items()}
    except (ValueError, TypeError, AttributeError):
        raise InvalidArgument("pageToken", "pageToken was not issued by this server. Start again without it.") from None

"""What a tenant reads of the metrics: the series of its own projects, and nothing else.

Place: between the text of a server, its workers or a cluster, and owners of tenants: a page for Prometheus, and
GetTenantMetrics.
Promise: a series is shown only if its label `project` (or `project_id`) is a project of the tenant; series without one
are nobody's. However often a tenant asks, its text is made once a second at most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Coroutine, Iterator
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from syncpoint.base.model.errors import NotFound, SyncpointError
from syncpoint.catalog.access.gate import Gate
from syncpoint.catalog.access.tenant_book import RESOURCE, TenantBook, parse_tenant
from syncpoint.watch.metrics.exposition import CONTENT_TYPE
from syncpoint.watch.metrics.kept_text import KeptText, MetricsText
from syncpoint.watch.metrics.scraped_page import refused
from syncpoint.wire.rest.app import caller_of

PERMISSION: Final = "syncpoint.tenants.readMetrics"
_SAMPLE: Final = re.compile(rb"(\w+)\{(.*)\} (\S+)")
_LABEL: Final = re.compile(rb'(\w+)="((?:[^"\\]|\\.)*)"')
_PROJECT: Final = (b"project", b"project_id")


class TenantTexts:
    """The metrics of each tenant. `everything`: of all processes; `blocking` runs the work on texts."""

    def __init__(
        self,
        everything: Callable[[], MetricsText],
        tenants: TenantBook,
        blocking: Callable[[Callable[[], bytes]], Coroutine[Any, Any, bytes]],
    ) -> None:
        self._everything, self._tenants, self._blocking = everything, tenants, blocking
        self._kept: dict[str, KeptText] = {}

    async def text(self, name: str) -> bytes:
        """The text of a tenant. Raises `NotFound`, `InvalidArgument`."""
        if self._tenants.find(parse_tenant(name)) is None:
            self._kept.pop(name, None)
            raise NotFound(f"tenants/{name}")
        kept = self._kept.get(name)
        if kept is None:
            kept = self._kept[name] = KeptText(partial(self._made, name))
        return await kept.get()

    async def _made(self, name: str) -> bytes:
        text = await self._everything().text()
        tenant = self._tenants.find(name)
        projects = () if tenant is None else tenant.projects
        return await self._blocking(partial(project_series, text, projects))


def project_series(text: bytes, projects: Collection[str] | None = None, process: str = "") -> bytes:
    """The series of these projects (projects/P; None: of any), with a label `process` unless that is ""; any thread."""
    wanted = None if projects is None else {one.removeprefix("projects/").encode() for one in projects}
    own = f'process="{process}",'.encode() if process else b""
    return b"".join(_lines(text, wanted, own))


def with_process(text: bytes, process: str) -> bytes:
    """All samples of a text, with a label `process`; any thread."""
    own = f'process="{process}"'.encode()

    def labelled(line: bytes) -> bytes:
        if not line or line.startswith(b"#"):
            return line
        name, brace, rest = line.partition(b"{")
        if brace:
            return b"%s{%s,%s" % (name, own, rest)
        name, _, rest = line.partition(b" ")
        return b"%s{%s} %s" % (name, own, rest)

    return b"\n".join(map(labelled, text.split(b"\n")))


def _lines(text: bytes, wanted: Collection[bytes] | None, own: bytes) -> Iterator[bytes]:
    head: list[bytes] = []
    for line in text.split(b"\n"):
        if line.startswith(b"#"):
            if line.startswith(b"# HELP "):
                head = []
            head.append(line)
            continue
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            continue
        labels = dict(_LABEL.findall(sample[2]))
        found = [labels[name] for name in _PROJECT if name in labels]
        if not found or not (wanted is None or all(one in wanted for one in found)):
            continue
        for one in head:
            yield one + b"\n"
        head = []
        yield b"%s{%s%s} %s\n" % (sample[1], own, sample[2], sample[3]) if own else line + b"\n"


def tenant_page(texts: TenantTexts, gate: Gate | None = None) -> BaseRoute:
    """The page of each tenant. `gate`: None answers everybody."""

    async def answer(request: Request) -> Response:
        name = request.path_params["tenant"]
        try:
            resource = RESOURCE + parse_tenant(name)
            if gate is not None:
                gate.check_page(caller_of(request.scope, f"/{resource}/metrics"), PERMISSION, resource)
            return Response(await texts.text(name), media_type=CONTENT_TYPE)
        except SyncpointError as error:
            return refused(error)

    return Route("/tenants/{tenant}/metrics", answer, methods=["GET"])

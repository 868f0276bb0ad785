"""The pages of the console: its program, and the few things that it asks for beside the methods of the server.

Place: put by `node` beside REST on every port for clients. All that changes something goes by the methods of REST,
with the caller's own credentials; nothing here changes anything.
Promise: the program has no secrets and is given to everybody; what it shows it asks for as the caller, whose token it
keeps in memory and sends as `authorization`. There are no cookies, so no page of another site can act for the caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from google.protobuf import json_format
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

import syncpoint
from syncpoint.base.model.errors import Code, PermissionDenied, SyncpointError
from syncpoint.base.model.names import parse_project, parse_schema, project_of
from syncpoint.base.runtime.child_processes import Apart, at_once, worked
from syncpoint.base.runtime.shipped_pages import pages, section
from syncpoint.catalog.access.gate import Gate
from syncpoint.catalog.access.permission_needs import SERVER
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.watch.console.audit_trail import PERMISSION as AUDIT_PERMISSION
from syncpoint.watch.console.audit_trail import AuditLogs, page_of, verified
from syncpoint.watch.console.bundle import INDEX, Bundle
from syncpoint.watch.console.decoding import asked, decoded_payloads, definition_asked
from syncpoint.watch.console.explaining import explained
from syncpoint.watch.console.flows import flows_of
from syncpoint.watch.console.inner_calls import called
from syncpoint.watch.console.live_stream import LiveStreams
from syncpoint.watch.console.resource_lists import ResourceLists
from syncpoint.watch.metrics.kept_text import MetricsText
from syncpoint.wire.protobuf import methods as rpc
from syncpoint.wire.protobuf.messages import admin
from syncpoint.wire.rest.app import caller_of
from syncpoint.wire.rest.errors import error_json, headers_for, status_of
from syncpoint.wire.rest.rendering import json_text
from syncpoint.wire.rest.system_parameters import headers_of, is_of_another_site
from syncpoint.wire.rest.table import Table
from syncpoint.wire.transport.calls import Methods

PATH: Final = "/console"
_NOT_BUILT: Final = "This installation has no console files. Build them with `python tools/console.py build`."
DECODED_AT_ONCE_BYTES: Final = 2048
"""Larger requests for payloads to be decoded go to another process: the worst costs 5 us a byte."""
ROLLOUT_S: Final = 5.0
RUNBOOKS_PAGE: Final = "operations/alerts"
NO_AUDIT: Final = "No audit log is configured. Set one in the --auth file: audit: {file: audit.log}."
_PAGE_HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

Page = Callable[[Request], Awaitable[Response]]


def console_pages(
    methods: Methods,
    catalog: Catalog,
    metrics: MetricsText,
    gate: Gate | None,
    audit: AuditLogs | None = None,
    apart: Apart = at_once,
) -> list[BaseRoute]:
    """All of them. `methods`: with their gate; `gate`: None where callers are not identified; `audit`: None where
    nobody keeps an audit log; `apart`: does what takes long."""
    bundle, live, lists = Bundle(), LiveStreams(methods, metrics, gate), ResourceLists(methods, catalog)
    routes = {
        f"{route.method.rpartition('.')[2].replace('/', '.')}": [route.verb, route.template, route.body]
        for route in reversed(Table(methods).routes)  # of several the first one is kept
    }

    async def program(request: Request) -> Response:
        path = request.path_params.get("path", "")
        if path.startswith("api/"):
            raise SyncpointError(Code.NOT_FOUND, "The console has no page at this address.")
        found = bundle.answer(request, path)
        if found is None and not path.startswith("assets/"):
            found = bundle.answer(request, INDEX)  # the program itself knows its pages
        if found is None:
            raise SyncpointError(
                Code.NOT_FOUND, _NOT_BUILT if INDEX not in bundle.files else "This file does not exist."
            )
        return found

    async def begin(request: Request) -> Response:
        return RedirectResponse(f"{PATH}/", 307)

    async def about(request: Request) -> Response:
        known = {"identifies": gate is not None, "audits": audit is not None}
        return _json({"version": syncpoint.__version__, **known, "routes": routes})

    def listed(request: Request) -> list[str]:
        """Projects that have a topic or a subscription, and of which the caller may list them."""
        call = caller_of(request.scope, request.url.path)
        if gate is not None:
            gate.admit(call)
        return [one for one in catalog.projects() if gate is None or gate.holds(call, "pubsub.topics.list", one)]

    async def projects(request: Request) -> Response:
        return _json({"projects": listed(request)})

    def check_list(request: Request, permission: str) -> None:
        if gate is not None:
            project = parse_project(request.query_params.get("project", ""))
            gate.check_page(caller_of(request.scope, request.url.path), permission, project)

    async def topics(request: Request) -> Response:
        check_list(request, "pubsub.topics.list")
        return _json(await lists.topics(request))

    async def subscriptions(request: Request) -> Response:
        check_list(request, "pubsub.subscriptions.list")
        return _json(await lists.subscriptions(request))

    async def watched(request: Request) -> Response:
        return live.answer(request)

    async def explain(request: Request) -> Response:
        return _json(await explained(methods, request, request.query_params.get("subscription", "")))

    def audited(request: Request) -> AuditLogs:
        """For who may read what others did. Raises `SyncpointError`."""
        if gate is not None:
            gate.check_page(caller_of(request.scope, request.url.path), AUDIT_PERMISSION, SERVER)
        if audit is None:
            raise SyncpointError(Code.NOT_FOUND, NO_AUDIT)
        return audit

    async def audit_page(request: Request) -> Response:
        return _json(await page_of(audited(request), request.query_params))

    async def audit_verified(request: Request) -> Response:
        return _json(await verified(audited(request)))

    async def rollout(request: Request) -> Response:
        """None is no error here: browsers write one down for every answer of 404."""
        try:
            asked = admin.GetRolloutRequest()
            found = await called(methods, rpc.ADMIN.GetRollout, asked, request, ROLLOUT_S)
        except SyncpointError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            return _json({})
        return _json({"rollout": json_format.MessageToDict(found)})

    async def runbook(request: Request) -> Response:
        rule = request.query_params.get("rule", "")
        text = await asyncio.to_thread(_runbook, rule.lower())
        if not text:
            raise SyncpointError(Code.NOT_FOUND, f"There is no runbook for {rule!r}.")
        return _json({"text": text})

    async def flows(request: Request) -> Response:
        return _json(await flows_of(methods, catalog, request, listed(request)))

    async def decode(request: Request) -> Response:
        call = caller_of(request.scope, request.url.path)
        if gate is not None:
            gate.admit(call)  # by the head; a body is waited for once that is known
        body = await request.body()
        large, caller = len(body) > DECODED_AT_ONCE_BYTES, "" if gate is None else gate.payer_of(call)
        what = await worked(apart, caller, partial(asked, body), large=large)
        schema = parse_schema(what["schema"])
        if gate is not None:
            gate.check_page(call, "pubsub.schemas.get", schema)
        value = definition_asked(catalog, schema, what["revision"])
        work = partial(decoded_payloads, value, what["payloads"])
        content = await worked(apart, project_of(schema), work, large=large)
        return Response(content, headers=_PAGE_HEADERS, media_type="application/json")

    return [
        Route(f"{PATH}/api/about", _own(about), methods=["GET"]),
        Route(f"{PATH}/api/projects", _own(projects), methods=["GET"]),
        Route(f"{PATH}/api/topics", _own(topics), methods=["GET"]),
        Route(f"{PATH}/api/subscriptions", _own(subscriptions), methods=["GET"]),
        Route(f"{PATH}/api/live", _own(watched), methods=["GET"]),
        Route(f"{PATH}/api/why", _own(explain), methods=["GET"]),
        Route(f"{PATH}/api/audit", _own(audit_page), methods=["GET"]),
        Route(f"{PATH}/api/audit/verified", _own(audit_verified), methods=["GET"]),
        Route(f"{PATH}/api/rollout", _own(rollout), methods=["GET"]),
        Route(f"{PATH}/api/runbook", _own(runbook), methods=["GET"]),
        Route(f"{PATH}/api/flows", _own(flows), methods=["GET"]),
        Route(f"{PATH}/api/decode", _own(decode), methods=["POST"]),
        Route(PATH, begin, methods=["GET"]),
        Route(f"{PATH}/{{path:path}}", _answered(program), methods=["GET"]),
    ]


def _own(page: Page) -> Page:
    """For the console alone: pages of other sites are refused."""

    async def checked(request: Request) -> Response:
        if is_of_another_site(headers_of(request.scope)):
            raise PermissionDenied("Cross-site requests are not allowed.")
        return await page(request)

    return _answered(checked)


def _answered(page: Page) -> Page:
    """With errors in the form of REST."""

    async def answered(request: Request) -> Response:
        try:
            return await page(request)
        except SyncpointError as error:
            content, headers = json_text(error_json(error)), {**_PAGE_HEADERS, **headers_for(error)}
            return Response(content, status_of(error), headers, media_type="application/json")

    return answered


def _runbook(rule: str) -> str:
    """What the shipped runbooks say of an alert's rule; empty: nothing."""
    page = pages().get(RUNBOOKS_PAGE)
    return "" if page is None else section(page.read_text(encoding="utf-8"), rule)


def _json(content: Any) -> Response:
    return Response(json_text(content, pretty=False), headers=_PAGE_HEADERS, media_type="application/json")

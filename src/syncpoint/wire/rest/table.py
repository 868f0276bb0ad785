"""One table: HTTP verb and path -> method, built from the annotations in the shipped descriptors.

Place: read by `app` for every request, and by `openapi` and `discovery`, which describe it.
Promise: what the annotations say and nothing else (google/api/http.proto): a new method with an annotation is served,
described and guarded without a line here. Two routes never fit one request.
Leaves to `transcode`: what of a request comes from the path, the body and the query.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import POOL, message_class
from syncpoint.wire.protobuf.methods import Method, Service

SERVICES: Final = (methods.PUBLISHER, methods.SUBSCRIBER, methods.SCHEMAS, methods.IAM, methods.ADMIN, methods.ACCOUNTS)
"""What is looked through for annotations."""

_RULE: Final = POOL.FindExtensionByName("google.api.http")
_OPTIONS: Final[Any] = message_class("google.protobuf.MethodOptions")
_VARIABLE: Final = re.compile(r"\{([\w.]+)(?:=([^}]*))?\}")
_STARS: Final = {"*": "[^/]+", "**": ".+"}


@dataclass(frozen=True, slots=True)
class Route:
    """One way to call a method. `template`: the path as annotated; `body`: the field the body is, `*` for the whole
    request, empty for none; `variables`: the path's variables, each a field of the request and the pattern of its
    value; `response_body`: the field of the response that is answered, empty for all of it.
    """

    verb: str
    template: str
    body: str
    response_body: str
    method: Method
    variables: tuple[tuple[str, str], ...]
    action: str
    """The part after the last colon of the path."""
    pattern: re.Pattern[str]
    """What a path without its action must look like."""


class Table:
    """All routes. `find` looks among those of the same verb, number of segments and action."""

    def __init__(self, served: Container[bytes] | None = None, services: Iterable[Service] = SERVICES) -> None:
        """`served`: the methods there are, by path; None: all."""
        self.routes = [
            route
            for service in services
            for method in service
            if served is None or method.encode() in served
            for route in routes_of(method)
        ]
        self._by_end: dict[tuple[str, str], list[Route]] = {}
        for route in self.routes:
            self._by_end.setdefault((route.verb, route.action), []).append(route)

    def find(self, verb: str, path: str) -> tuple[Route, dict[str, str]] | None:
        """The route of a request and the values of its variables; `path` as it came, still percent-encoded: a colon in
        its last segment begins an action. Raises `InvalidArgument` for a path that is not UTF-8."""
        head, colon, action = path.rpartition(":")
        if not colon or "/" in action:
            head, action = path, ""
        for route in self._by_end.get((verb, action), ()):
            if match := route.pattern.fullmatch(head):
                names = (name for name, _ in route.variables)
                return route, {name: _decoded(value) for name, value in zip(names, match.groups(), strict=True)}
        return None

    def verbs(self, path: str) -> list[str]:
        """With which verbs there is something at a path."""
        return sorted(verb for verb in {route.verb for route in self.routes} if self.find(verb, path) is not None)


def routes_of(method: Method) -> list[Route]:
    """The routes of one method: none without an annotation, or when it streams."""
    if method.is_streaming:
        return []
    options = _OPTIONS.FromString(method.descriptor.GetOptions().SerializeToString())
    rule = options.Extensions[_RULE]
    ways = [rule, *rule.additional_bindings]
    return [_route(method, way) for way in ways if way.WhichOneof("pattern")]


def _route(method: Method, rule: Any) -> Route:
    verb = rule.WhichOneof("pattern")
    template = getattr(rule, verb)
    path, _, action = template.rpartition(":") if ":" in template.rpartition("/")[2] else (template, "", "")
    variables: list[tuple[str, str]] = []

    def variable(match: re.Match[str]) -> str:
        variables.append((match[1], match[2] or "*"))
        return f"({_of_segments(match[2] or '*')})"

    parts = _VARIABLE.split(path)
    found = list(_VARIABLE.finditer(path))
    # split() yields text, name, pattern, text, name, pattern, ..., text
    text = "".join(
        _of_segments(part) + (variable(found[number]) if number < len(found) else "")
        for number, part in enumerate(parts[::3])
    )
    return Route(
        verb.upper(), template, rule.body, rule.response_body, method, tuple(variables), action, re.compile(text)
    )


def _of_segments(pattern: str) -> str:
    return "/".join(_STARS.get(segment) or re.escape(segment) for segment in pattern.split("/"))


def _decoded(value: str) -> str:
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise InvalidArgument("", "The path is not valid UTF-8.") from None

"""Requests and responses between JSON and protobuf, as google/api/http.proto and ProtoJSON have it.

Place: between `app` and the methods, which take and give bytes of protobuf.
Promise: what is not a field, not of its type or not base64 is refused with the words and the details of Google's own
front end, never dropped or guessed. A request that only sets fields of its own message costs time in proportion to its
size. Leaves to `json_format`: the rules of ProtoJSON for each type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.wire.protobuf.messages import POOL, message_class
from syncpoint.wire.rest.errors import bad_request
from syncpoint.wire.rest.table import Route

DEPTH_MAX: Final = 64
VALUES_MAX: Final = 250_000
"""Of one body: twice what the largest publish has, 1000 messages with 100 attributes."""
_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_MASK: Final = "google.protobuf.FieldMask"
_OWN_JSON: Final = "google.protobuf."
"""Messages of this package have JSON of their own."""
_AS_TEXT: Final = frozenset(
    _OWN_JSON + name
    for name in (
        "Timestamp", "Duration", "FieldMask", "StringValue", "BytesValue", "BoolValue", "Int32Value", "Int64Value",
        "UInt32Value", "UInt64Value", "FloatValue", "DoubleValue",
    )
)  # fmt: skip
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_BOOLS: Final = {"true": True, "false": False}
_NOT_JSON: Final = "Invalid JSON payload received."
_OF_PYTHON: Final = (
    (re.compile(r"invalid literal for int\(\) with base 10: (.*?)\.?$"), r"\1 is not an integer"),
    (re.compile(r"could not convert string to float: (.*?)\.?$"), r"\1 is not a number"),
)
"""Parts of protobuf's texts that only Python programmers understand, each with what is written instead."""


# -- requests ----------------------------------------------------------------------------------------------------------


def request_of(
    route: Route, variables: Mapping[str, str], query: Iterable[tuple[str, str]], body: bytes, binary: bool = False
) -> bytes:
    """The request of a call, serialised: body first, then the query, then the path. `binary`: the
    body is protobuf. Raises `InvalidArgument`."""
    message = route.method.request()
    if binary:
        _read_binary(route, message, body)
    elif body.strip():
        content = read_json(body)
        if route.body == "*":
            _merge(message, content, "")
        elif route.body:
            _merge(message, {route.body: content}, "")
        elif content != {}:
            raise bad_request("", f"{_NOT_JSON} A {route.verb} request of this path must not have a body.")
    descriptor = message.DESCRIPTOR
    if asked := _query_tree(descriptor, query):
        _merge(message, asked, "")
    for name, value in variables.items():
        _put(message, name.split("."), value)
    serialised: bytes = message.SerializeToString()
    return serialised


def _read_binary(route: Route, message: Any, body: bytes) -> None:
    if not route.body:
        if body:
            raise bad_request("", f"A {route.verb} request of this path must not have a body.")
        return
    try:
        (message if route.body == "*" else getattr(message, route.body)).MergeFromString(body)
    except DecodeError:
        raise bad_request("", "Invalid PROTO payload received.") from None


def values_in(body: bytes) -> int:
    """How many values a body of JSON has, at most."""
    return sum(map(body.count, b"[{,"))


def read_json(body: bytes) -> Any:
    """A body as JSON values. Raises `InvalidArgument`."""
    if values_in(body) > VALUES_MAX and sum(map(_TEXT.sub(b"", body).count, b"[{,")) > VALUES_MAX:
        raise bad_request("", f"{_NOT_JSON} It has more than {VALUES_MAX} values.")
    try:
        return json.loads(body.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise bad_request("", f"{_NOT_JSON} It is not UTF-8.") from None
    except RecursionError:
        raise bad_request("", f"{_NOT_JSON} It is nested too deeply.") from None
    except ValueError as error:
        raise bad_request("", f"{_NOT_JSON} {error}.") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("A name is given twice in one object")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"Unexpected token {text}")


def _put(message: Any, names: list[str], value: str) -> None:
    for name in names[:-1]:
        message = getattr(message, name)
    try:
        setattr(message, names[-1], value)
    except ValueError:  # a lone surrogate
        raise bad_request(names[-1], f"Invalid value at '{names[-1]}'.") from None


def _merge(message: Any, content: Any, path: str) -> None:
    checked = _checked(content, message.DESCRIPTOR, path, DEPTH_MAX)
    try:
        json_format.ParseDict(checked, message, descriptor_pool=POOL)
    except (json_format.ParseError, ValueError, TypeError, OverflowError) as error:
        problem = str(error).splitlines()[0]
        for text, plain in _OF_PYTHON:
            problem = text.sub(plain, problem)
        raise bad_request("", f"{_NOT_JSON} {problem}") from None


@cache
def _fields(descriptor: Descriptor) -> dict[str, FieldDescriptor]:
    """The fields of a message by both of their names."""
    return {name: field for field in descriptor.fields for name in (field.json_name, field.name)}


def _checked(value: Any, descriptor: Descriptor, path: str, depth: int) -> Any:
    """The JSON of a message without nulls and with masks as `json_format` takes them. Raises `InvalidArgument`."""
    if depth == 0:
        raise bad_request(path, f"{_NOT_JSON} It is nested too deeply.")
    if descriptor.full_name == _MASK:
        return _mask(value, path)
    if descriptor.full_name.startswith(_OWN_JSON):
        return value
    if not isinstance(value, dict):
        where = f"Invalid value at '{path}' ({descriptor.full_name})" if path else "Root element must be a message"
        raise bad_request(path, f"{_NOT_JSON} {where}.")
    fields, found = _fields(descriptor), {}
    for name, item in value.items():
        field = fields.get(name)
        if field is None:
            at = f" at '{path}'" if path else ""
            raise bad_request(path, f'{_NOT_JSON} Unknown name "{name[:256]}"{at}: Cannot find field.')
        if item is None and (field.message_type is None or field.message_type.full_name != _OWN_JSON + "Value"):
            continue
        if field.name in found or field.json_name in found:
            raise bad_request(path, f'{_NOT_JSON} "{name}" is given twice.')
        found[name] = _field(item, field, f"{path}.{field.name}" if path else field.name, depth - 1)
    return found


def _field(item: Any, field: FieldDescriptor, path: str, depth: int) -> Any:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        if not isinstance(item, dict):
            raise bad_request(path, f"Invalid value at '{path}' (map).")
        of = entry.fields_by_name["value"]
        return {key: _single(one, of, f"{path}[{key!r}]", depth) for key, one in item.items()}
    if field.is_repeated:
        if not isinstance(item, list):
            raise bad_request(path, f"Invalid value at '{path}': a list is expected.")
        return [_single(one, field, f"{path}[{number}]", depth) for number, one in enumerate(item)]
    return _single(item, field, path, depth)


def _single(item: Any, field: FieldDescriptor, path: str, depth: int) -> Any:
    if field.message_type is not None:
        return _checked(item, field.message_type, path, depth)
    if field.type == FieldDescriptor.TYPE_BYTES:
        if not isinstance(item, str) or _BASE64.fullmatch(item) is None or len(item.rstrip("=")) % 4 == 1:
            raise bad_request(path, f"Invalid value at '{path}' (TYPE_BYTES), Base64 decoding failed.")
    elif isinstance(item, (dict, list)):
        raise bad_request(path, f"Invalid value at '{path}': a single value is expected.")
    return item


def _mask(value: Any, path: str) -> str:
    """A field mask with paths in lowerCamelCase; snake_case is taken as well, as Google does."""
    if not isinstance(value, str):
        raise bad_request(path, f"Invalid value at '{path}' ({_MASK}): a string is expected.")
    return ",".join(re.sub(r"_+([a-z0-9])", lambda match: match[1].upper(), one) for one in value.split(","))


def _query_tree(descriptor: Descriptor, query: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Parameters of a query as the JSON of a request."""
    tree: dict[str, Any] = {}
    for name, text in query:
        names = name.split(".")
        kind, at, here = descriptor, tree, ""
        for number, part in enumerate(names):
            field = _fields(kind).get(part)
            here = f"{here}.{field.name}" if here and field else (field.name if field else part)
            if field is None:
                raise bad_request(
                    "", f"{_NOT_JSON} Unknown name \"{name[:256]}\": Cannot bind query parameter. Field '{here[:256]}'"
                    " could not be found in request message."
                )  # fmt: skip
            if number == len(names) - 1:
                _bind(at, field, text, name)
            elif field.message_type is None or field.is_repeated or field.message_type.full_name in _AS_TEXT:
                raise bad_request(here, f'{_NOT_JSON} Cannot bind query parameter "{name[:256]}".')
            else:
                kind, at = field.message_type, at.setdefault(field.json_name, {})
    return tree


def _bind(at: dict[str, Any], field: FieldDescriptor, text: str, name: str) -> None:
    if field.message_type is not None and (field.is_repeated or field.message_type.full_name not in _AS_TEXT):
        raise bad_request(field.name, f'{_NOT_JSON} Cannot bind query parameter "{name[:256]}".')
    value: Any = text
    if field.type == FieldDescriptor.TYPE_BOOL:
        if text.lower() not in _BOOLS:
            raise bad_request(field.name, f"Invalid value at '{field.name}' (TYPE_BOOL), \"{text[:256]}\"")
        value = _BOOLS[text.lower()]
    key = field.json_name
    if field.is_repeated:
        at.setdefault(key, []).append(value)
    elif key not in at:
        at[key] = value
    elif field.message_type is not None and field.message_type.full_name == _MASK:
        at[key] += f",{text}"
    else:
        raise bad_request(field.name, f'{_NOT_JSON} Query parameter "{name[:256]}" is given twice.')


# -- responses ---------------------------------------------------------------------------------------------------------


def response_json(route: Route, data: bytes, numbers: bool = False) -> Any:
    """A serialised response as JSON values. `numbers`: enums as numbers."""
    message = message_class(route.method.descriptor.output_type.full_name).FromString(data)
    found: dict[str, Any] = json_format.MessageToDict(message, use_integers_for_enums=numbers, descriptor_pool=POOL)
    if route.response_body:
        return found.get(_fields(message.DESCRIPTOR)[route.response_body].json_name, {})
    return found


def response_message(route: Route, data: bytes) -> bytes:
    """A serialised response as protobuf."""
    if not route.response_body:
        return data
    message = message_class(route.method.descriptor.output_type.full_name).FromString(data)
    part: bytes = getattr(message, route.response_body).SerializeToString()
    return part


# -- partial responses -------------------------------------------------------------------------------------------------

Selection = Mapping[str, Any]
"""Which fields of a message to answer, by their names in JSON; an empty one is all of it."""

_TOKEN: Final = re.compile(r"[(),/.]|[^(),/.\s]+")
_EXPRESSION_MAX: Final = 4096


def selection(text: str, descriptor: Descriptor) -> Selection:
    """The parameter `fields`: `a,b/c,d(e,f),*`. Raises `InvalidArgument` for what is no field."""
    if len(text) > _EXPRESSION_MAX:
        raise bad_request("fields", "The parameter 'fields' is too long.")
    tokens = _TOKEN.findall(text)
    tokens.reverse()
    found = _list(tokens, descriptor, text, DEPTH_MAX)
    if tokens:
        raise _no_selection(text)
    return found


def _list(tokens: list[str], descriptor: Descriptor | None, text: str, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while True:
        _item(tokens, descriptor, found, text, depth - 1)
        if not tokens or tokens[-1] != ",":
            return found
        tokens.pop()


def _item(tokens: list[str], descriptor: Descriptor | None, into: dict[str, Any], text: str, depth: int) -> None:
    if not tokens or tokens[-1] in "(),/." or depth <= 0:
        raise _no_selection(text)
    name, of = tokens.pop(), None
    if descriptor is not None and name != "*":
        field = _fields(descriptor).get(name)
        if field is None:
            raise _no_selection(name)
        name, of = field.json_name, field.message_type
        if of is not None and (of.GetOptions().map_entry or of.full_name.startswith(_OWN_JSON)):
            of = None
    seen = name in into
    whole = seen and not into[name]
    inner = into.setdefault(name, {})
    if tokens and tokens[-1] in "/.":
        tokens.pop()
        _item(tokens, of, inner, text, depth)
    elif tokens and tokens[-1] == "(":
        tokens.pop()
        _update(inner, _list(tokens, of, text, depth))
        if not tokens or tokens.pop() != ")":
            raise _no_selection(text)
    else:
        whole = True
    if whole:
        into[name] = {}


def _update(into: dict[str, Any], more: dict[str, Any]) -> None:
    for name, inner in more.items():
        if name in into and into[name] and inner:
            _update(into[name], inner)
        else:
            into[name] = {} if name in into else inner


def _no_selection(name: str) -> InvalidArgument:
    return bad_request("fields", f"Invalid field selection {name[:256]}")


def selected(value: Any, chosen: Selection) -> Any:
    """What was asked for of a response."""
    if not chosen:
        return value
    if isinstance(value, list):
        return [selected(one, chosen) for one in value]
    if not isinstance(value, dict):
        return value
    every = chosen.get("*")
    found = {}
    for name, item in value.items():
        if name in chosen:
            found[name] = selected(item, chosen[name])
        elif every is not None:
            found[name] = selected(item, every)
    return found

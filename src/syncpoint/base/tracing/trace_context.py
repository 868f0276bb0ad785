"""Contexts of traces (W3C): read from headers and messages, found in whole batches of bytes, and derived.

Place: under everything that makes spans.
Promise: what is not well formed is no context. An id that is derived depends on nothing but its arguments, so two
processes derive the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

ATTRIBUTE: Final = "googclient_traceparent"
"""Where the official clients write the context of a message."""

LENGTH: Final = 55
_PARENT: Final = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_ENTRY: Final = re.compile(
    b"\x0a" + bytes([len(ATTRIBUTE)]) + ATTRIBUTE.encode() + b"\x12" + bytes([LENGTH]) + b"(" + _PARENT.pattern + b")"
)  # an entry of the map `attributes`, as protobuf writes it


class TraceContext(NamedTuple):
    """A span, as others refer to it. Ids are numbers above 0."""

    trace_id: int
    span_id: int
    sampled: bool


def traceparent(text: bytes | str) -> TraceContext | None:
    """The context in a header or an attribute; None if it is not valid."""
    given = _PARENT.fullmatch(text if isinstance(text, bytes) else text.encode())
    if given is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in given.groups())
    return TraceContext(trace_id, span_id, bool(flags & 1)) if trace_id and span_id else None


def found(data: bytes | memoryview, most: int) -> list[TraceContext]:
    """The sampled contexts of the messages in a batch, serialised in whatever frame, in their order; the first `most`.

    What a message's data happens to hold in the same form is found, too: a span too many, and nothing else.
    """
    contexts = []
    for entry in _entries(data):
        context = traceparent(entry)
        if context is not None and context.sampled:
            contexts.append(context)
            if len(contexts) == most:
                break
    return contexts


def _entries(data: bytes | memoryview) -> Iterator[bytes]:
    for entry in _ENTRY.finditer(data):
        yield bytes(entry[1])


def span_context(context: TraceContext, of: str) -> TraceContext:
    """The span that is made under a context and is `of` something."""
    seed = b"%032x%016x%s" % (context.trace_id, context.span_id, of.encode())
    digest = hashlib.blake2b(seed, digest_size=8).digest()
    return TraceContext(context.trace_id, int.from_bytes(digest) or 1, context.sampled)

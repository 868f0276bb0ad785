"""Families of calls: how often each method was called, how its calls ended, how long they took; and of listeners.

Place: in every process that answers calls. The counts stand beside the methods of each table, whatever carries their
calls: HTTP/2, or REST.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from syncpoint.base.model.errors import Code
from syncpoint.watch.metrics.family import Family, MetricKind, QuickCollector, Samples
from syncpoint.wire.transport.calls import Methods

_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM
_METHOD: Final = ("listener", "method")
CALL_FAMILIES: Final = (
    Family("syncpoint_calls_begun_total", _C, "", _METHOD, "Calls started."),
    Family("syncpoint_calls_total", _C, "", (*_METHOD, "code"), "Calls completed, by status code."),
    Family("syncpoint_calls_open", _G, "", _METHOD, "Calls and streams in progress."),
    Family(
        "syncpoint_call_seconds",
        _H,
        "seconds",
        _METHOD,
        "Time to answer calls; for streams, their duration.",
    ),
)
LISTENER_FAMILIES: Final = tuple(
    Family(f"syncpoint_listener_{name}", kind, unit, ("listener",), meaning)
    for name, kind, unit, meaning in (
        ("connections", _G, "", "Open connections."),
        ("accepted_total", _C, "", "Accepted connections."),
        ("streams", _G, "", "Open HTTP/2 streams."),
        ("calls_total", _C, "", "HTTP/2 streams opened, including calls of unknown methods."),
        ("refused_total", _C, "", "Connections and streams refused because a limit was reached."),
        ("faults_total", _C, "", "Connections closed because of HTTP/2 protocol errors by the peer."),
        ("held_bytes", _G, "bytes", "Bytes of incomplete incoming messages."),
        ("unsent_bytes", _G, "bytes", "Unsent bytes for slow readers, over all listeners of the process."),
        ("shed_total", _C, "", "Connections closed because too much unsent data had accumulated."),
        ("read_bytes_total", _C, "bytes", "Bytes received, without TLS overhead."),
        ("written_bytes_total", _C, "bytes", "Bytes sent by HTTP/2, without TLS overhead."),
    )
)
_STATS: Final = {
    "connections": "connections",
    "accepted_total": "accepted",
    "streams": "streams",
    "calls_total": "calls",
    "refused_total": "refused",
    "faults_total": "faults",
    "held_bytes": "held",
    "unsent_bytes": "unsent",
    "shed_total": "shed",
    "read_bytes_total": "read",
    "written_bytes_total": "written",
}
FAMILIES: Final = (*CALL_FAMILIES, *LISTENER_FAMILIES)


def method_label(path: bytes) -> str:
    """Publisher.Publish, of /google.pubsub.v1.Publisher/Publish."""
    service, _, method = path.decode("ascii", "replace").strip("/").rpartition("/")
    return f"{service.rpartition('.')[2]}.{method}"


class CallRoom(QuickCollector):
    """`tables`: the methods that each listener answers, by its name. Methods that nobody called are not shown."""

    name = "calls"

    def __init__(self, tables: Mapping[str, Methods]) -> None:
        self._tables = tables

    def collect(self, samples: Samples) -> None:
        for listener, table in self._tables.items():
            for path, method in table.items():
                counts = method.counts
                if not counts.begun:
                    continue
                labels = (listener, method_label(path))
                samples.put("syncpoint_calls_begun_total", counts.begun, *labels)
                samples.put("syncpoint_calls_open", counts.open, *labels)
                samples.put_histogram("syncpoint_call_seconds", counts.latency, *labels)
                for code, number in enumerate(counts.codes):
                    if number or not code:
                        samples.put("syncpoint_calls_total", number, *labels, Code(code).name)


class ListenerRoom(QuickCollector):
    """`stats`: of each listener by its name; see `transport.server.Server`. None: it is not there."""

    name = "listeners"

    def __init__(self, stats: Mapping[str, Callable[[], Mapping[str, int] | None]]) -> None:
        self._stats = stats

    def collect(self, samples: Samples) -> None:
        for listener, stats in self._stats.items():
            found = stats()
            if found is None:
                continue
            for name, known in _STATS.items():
                samples.put(f"syncpoint_listener_{name}", found[known], listener)

"""Families of `syncpoint bridge run`. `programs.bridge.bridge_state` puts them."""

from __future__ import annotations

from typing import Final

from syncpoint.watch.metrics.family import Family, MetricKind

PREFIX: Final = "syncpoint_bridge_"
_C, _G = MetricKind.COUNTER, MetricKind.GAUGE
FAMILIES: Final = tuple(
    Family(f"{PREFIX}{name}", kind, "", (), meaning)
    for name, kind, meaning in (
        ("connected", _G, "1 while the bridge is connected to the other broker."),
        ("connects_total", _C, "Connections that the other broker took."),
        ("lost_sessions_total", _C, "Connections where an MQTT broker had forgotten the session."),
        ("held_messages", _G, "Messages received and not confirmed by their target yet."),
        ("held_bytes", _G, "Their bytes."),
        ("stored_messages_total", _C, "Messages that their target has, or dropped as duplicates."),
        ("failed_messages_total", _C, "Attempts that failed. The message is sent again, unless it came with QoS 0."),
        ("lost_messages_total", _C, "Messages of QoS 0 among them."),
        ("redelivered_messages_total", _C, "Messages that came again."),
        ("joined_messages_total", _C, "Messages that came again while they were still under way."),
        ("dropped_messages_total", _C, "Messages that their target cannot take, dropped (`unfit: drop`)."),
        ("unmatched_messages_total", _C, "Messages that no rule of the file matches, dropped."),
        ("dead_letters_total", _C, "Messages that their target cannot take, stored in `dead_letters`."),
    )
)

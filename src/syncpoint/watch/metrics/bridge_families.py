"""Families of `syncpoint bridge mqtt run`. `programs.bridge.mqtt_driver` puts them."""

from __future__ import annotations

from typing import Final

from syncpoint.watch.metrics.family import Family, MetricKind

PREFIX: Final = "syncpoint_bridge_"
_C, _G = MetricKind.COUNTER, MetricKind.GAUGE
FAMILIES: Final = tuple(
    Family(f"{PREFIX}{name}", kind, "", (), meaning)
    for name, kind, meaning in (
        ("connected", _G, "1 while the bridge is connected to the MQTT broker."),
        ("connects_total", _C, "Connections that the MQTT broker took."),
        ("lost_sessions_total", _C, "Connections where the MQTT broker had forgotten the session."),
        ("held_messages", _G, "Messages received and not stored yet."),
        ("held_bytes", _G, "Their bytes."),
        ("stored_messages_total", _C, "Messages stored in topics, or dropped there as duplicates."),
        ("failed_messages_total", _C, "Publishes that failed. The message is sent again, unless it had QoS 0."),
        ("lost_messages_total", _C, "Messages of QoS 0 among them."),
        ("redelivered_messages_total", _C, "Messages that the MQTT broker marked as sent before."),
        ("joined_messages_total", _C, "Redelivered messages whose publish was still under way."),
        ("dropped_messages_total", _C, "Messages that no topic can take, dropped (`unfit: drop`)."),
        ("unmatched_messages_total", _C, "Messages that no rule of the file matches, dropped."),
    )
)

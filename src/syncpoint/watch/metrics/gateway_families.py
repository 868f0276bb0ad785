"""Families of `syncpoint gateway run`: its sites and streams. `programs.cli.gateway_process` puts them."""

from __future__ import annotations

from typing import Final

from syncpoint.watch.metrics.family import Family, MetricKind

PREFIX: Final = "syncpoint_gateway_"
SITE: Final = ("site",)
_C, _G = MetricKind.COUNTER, MetricKind.GAUGE
FAMILIES: Final = tuple(
    Family(f"{PREFIX}{name}", kind, "", labels, meaning)
    for name, kind, labels, meaning in (
        ("site_open", _G, SITE, "1 while the site takes calls, 0 while it is masked."),
        ("site_home", _G, SITE, "1 for the site that calls go to."),
        ("site_answers", _G, SITE, "1 while the site answers probes."),
        ("site_changes_total", _C, SITE, "How often the site was masked or taken back."),
        ("calls_total", _C, SITE, "Calls sent to the site."),
        ("calls_failed_total", _C, SITE, "Calls that found the site silent or gone."),
        ("streams", _G, SITE, "Streaming pulls open at the site."),
        ("streams_moved_total", _C, (), "Streaming pulls ended because their site was left."),
        ("responses_total", _C, (), "Responses of streaming pulls passed on."),
        ("lacking_messages", _G, SITE, "Messages of dual topics that a masked site lacks."),
        ("dual_published_total", _C, (), "Publishes to dual topics."),
        ("dual_one_site_total", _C, (), "Publishes to dual topics that one site alone has stored at first."),
        ("dual_copied_messages_total", _C, (), "Messages of dual topics copied to a site that lacked them."),
        ("dual_dropped_messages_total", _C, (), "Messages not delivered because they were acknowledged before."),
        ("dual_held_messages", _G, (), "Copies held until their originals are acknowledged."),
        ("peer_waiting", _G, ("peer",), "Acknowledgements that another gateway has not been sent."),
        (
            "peer_dropped_total",
            _C,
            ("peer",),
            "Acknowledgements dropped because too many waited for another gateway.",
        ),
        ("refused_total", _C, (), "Calls and streams refused because their caller had too much under way."),
    )
)

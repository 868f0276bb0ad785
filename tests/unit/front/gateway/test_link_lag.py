"""Links decide when a site may come back."""

from __future__ import annotations

import asyncio
from http.client import BadStatusLine

from prometheus_client import CollectorRegistry, generate_latest

from syncpoint.front.gateway.link_lag import LinkLag, lag_of
from syncpoint.front.gateway.site_board import HealthRules, SiteBoard, SiteState
from syncpoint.watch.metrics.exposition import FoundSamples
from syncpoint.watch.metrics.family import Samples
from syncpoint.watch.metrics.federation_families import FAMILIES, PREFIX


def page(**lags: int) -> str:
    """The metrics of `federation run`, by `SOURCE_TARGET`."""
    samples = Samples(FAMILIES)
    for name, lag in lags.items():
        samples.put(f"{PREFIX}lag_messages", lag, f"shop.{name}.orders", *name.split("_"))
    registry = CollectorRegistry()
    registry.register(FoundSamples(samples))
    return generate_latest(registry).decode()


PAGE = page(eu_us=7, us_eu=1_200, a_b=1)


def board() -> SiteBoard:
    made = SiteBoard([SiteState("eu", 200), SiteState("us")], HealthRules(failures=1, successes=1))
    made.missed("us", "silent", 1.0)
    assert made.sites["us"].masked
    return made


def test_the_lag_is_of_links_to_a_site_and_from_it() -> None:
    assert lag_of("eu", PAGE) == lag_of("us", PAGE) == 1207
    assert lag_of("b", PAGE) == 1
    assert lag_of("c", PAGE) is None


def test_a_site_comes_back_when_links_lack_little_enough() -> None:
    found, shown = board(), [PAGE]
    lag = LinkLag(found, "localhost:1", 1_000, lambda address: shown[0])
    lag.left("us")
    found.answered("us", 2.0)
    assert found.sites["us"].masked  # the lag is not known
    asyncio.run(lag.look(["us"]))
    found.answered("us", 3.0)
    assert found.sites["us"].held == "links have 1,207 messages to copy"
    assert found.sites["us"].masked
    shown[0] = page(eu_us=7, us_eu=12)
    asyncio.run(lag.look(["us"]))
    found.answered("us", 4.0)
    assert not found.sites["us"].masked


def test_what_is_not_known_holds_a_site_back() -> None:
    def silent(address: str) -> str:
        raise OSError(f"nobody at {address}")

    found = board()
    found.hold("us", "5 messages are not copied yet")
    asyncio.run(LinkLag(found, "localhost:1", 1_000, silent).look(["us"]))
    assert "5 messages are not copied yet; the lag of its links is not known" in found.sites["us"].held

    def garbled(address: str) -> str:
        raise BadStatusLine("no HTTP")

    asyncio.run(LinkLag(found, "localhost:1", 1_000, garbled).look(["us"]))
    assert "does not answer (no HTTP)" in found.sites["us"].held
    asyncio.run(LinkLag(found, "localhost:1", 1_000, lambda address: "").look(["us"]))
    assert "has no flow of a cluster 'us'" in found.sites["us"].held

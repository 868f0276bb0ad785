"""Whether the regions that may store a topic are there, and reachable from this proxy.

Place: asked by `publisher` before every attempt and every pause.
Promise: a region counts as gone only after it was away for a while; one whose forwarders are all silent is cut off
immediately, although they count as living.
"""

from __future__ import annotations

from syncpoint.catalog.metadata.records import Topic
from syncpoint.front.proxy.failure_detector import FailureDetector
from syncpoint.front.proxy.route_cache import RouteCache

REGION_S = 5.0  # a region may be away for this long before messages that must lie in it are refused


class RegionReach:
    """As seen from one proxy."""

    def __init__(self, routes: RouteCache, detector: FailureDetector) -> None:
        self._routes = routes
        self._detector = detector
        self._gone: dict[tuple[str, ...], float] = {}  # regions without a member, with the time since when

    def is_gone(self, topic: Topic, now: float) -> bool:
        """Whether no publish forwarder of the regions that may store a topic has been there for a while."""
        if not topic.regions:
            return False
        if self._routes.has_region(topic):
            self._gone.pop(topic.regions, None)
            return False
        return now - self._gone.setdefault(topic.regions, now) > REGION_S

    def is_cut_off(self, topic: Topic) -> bool:
        """Whether no forwarder of the regions that may store a topic is reachable, though they count as living."""
        silent = self._detector.silent
        if not topic.regions or not silent:
            return False
        takers = self._routes.takers(topic)
        return bool(takers) and all(one.address in silent for one in takers)

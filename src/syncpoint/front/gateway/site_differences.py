"""What of dual topics is at a site that was away, and not at the home, or otherwise: deletions and policies it missed.

Place: beside `site_fill`; looks, and changes nothing. Whether a subscription was deleted at the home, or made at the
site on purpose, nobody knows here, nor which of two policies is the later one: operators read it in the status.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, Protocol

from syncpoint.base.model.errors import Code, SyncpointError
from syncpoint.front.proxy.cancellable_calls import MOVABLE
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.methods import Method

SHOWN_MAX: Final = 5

log = logging.getLogger(__name__)


class AskingSites(Protocol):
    """What the gateway itself asks sites."""

    async def call(self, site: str, method: Method, **fields: Any) -> Any: ...

    def listed(self, site: str, method: Method, field: str, **fields: Any) -> AsyncIterator[Any]: ...


class SiteDifferences:
    """By site and topic."""

    def __init__(self, sites: AskingSites) -> None:
        self._sites = sites
        self._found: dict[str, dict[str, list[str]]] = {}

    def topics(self, site: str) -> Iterable[str]:
        """Those that differ at a site, as of the newest look."""
        return list(self._found.get(site, ()))

    def shown(self, site: str) -> list[str]:
        """What differs at a site, in words."""
        found = [remark for some in self._found.get(site, {}).values() for remark in some]
        return [*found[:SHOWN_MAX], *([f"and {len(found) - SHOWN_MAX} more"] if len(found) > SHOWN_MAX else [])]

    async def look(self, home: str, site: str, topic: str, *, at_home: bool) -> None:
        """Compare a topic. Raises `SyncpointError` where a site does not answer."""
        try:
            remarks = await self._compare(home, site, topic) if at_home else await self._alone(home, site, topic)
        except SyncpointError as error:
            if error.code in MOVABLE:
                raise
            remarks = [f"{topic} is not compared: {error.message}"]
        some = self._found.setdefault(site, {})
        some.pop(topic, None)
        if remarks:
            some[topic] = remarks

    async def _alone(self, home: str, site: str, topic: str) -> list[str]:
        try:
            await self._sites.call(site, methods.PUBLISHER.GetTopic, topic=topic)
        except SyncpointError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            return []
        return [f"{topic} is not at {home}"]

    async def _compare(self, home: str, site: str, topic: str) -> list[str]:
        there, here = await self._subscriptions(home, topic), await self._subscriptions(site, topic)
        remarks = [f"{one} is not at {home}" for one in sorted(here - there)]
        try:
            for name in (topic, *sorted(here & there)):
                if await self._policy(home, name) != await self._policy(site, name):
                    remarks.append(f"{name} has another policy")
        except SyncpointError as error:
            if error.code is not Code.PERMISSION_DENIED:
                raise
            log.info("policies of %s are not compared: %s", topic, error)  # roles/pubsub.editor does not read them
        return remarks

    async def _subscriptions(self, site: str, topic: str) -> set[str]:
        listed = self._sites.listed(site, methods.PUBLISHER.ListTopicSubscriptions, "subscriptions", topic=topic)
        return {one async for one in listed}

    async def _policy(self, site: str, name: str) -> set[Any]:
        policy = await self._sites.call(site, methods.IAM.GetIamPolicy, resource=name)
        return {(one.role, frozenset(one.members), one.condition.expression) for one in policy.bindings}

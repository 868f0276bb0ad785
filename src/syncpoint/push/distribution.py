"""Which process of a cluster pushes which subscription.

Place: pure functions, asked whenever members or push subscriptions change.
Promise: every process that knows the same members says the same. One that comes, leaves, drains or dies moves the
subscriptions it gets or had, and no others. Two that disagree for a while push the same subscription, never the same
message at a time: both are its subscribers, and a message is lent to one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from syncpoint.model.cluster import SUBSCRIBE, Member
from syncpoint.router import rendezvous


def pushers(members: Iterable[Member], role: str = SUBSCRIBE) -> list[Member]:
    """Who may push: the processes of a role that do not drain; if all drain, all. By name: a process that was restarted
    gets what it had.
    """
    able = {one.name: one for one in sorted(members, key=lambda one: one.incarnation) if role in one.roles}
    staying = [one for one in able.values() if not one.draining]
    return sorted(staying or able.values(), key=lambda one: one.name)


def pusher_of(subscription: int, able: Sequence[Member]) -> Member | None:
    """Who of `pushers` pushes a subscription; None if there is nobody."""
    weights = {one.name: one.weight for one in able}
    order = rendezvous.order(subscription, list(weights), weights)
    return next((one for one in able if order and one.name == order[0]), None)


def pushed_by(name: str, subscriptions: Iterable[int], able: Sequence[Member]) -> set[int]:
    """What the process of this name pushes."""
    found = set()
    for subscription in subscriptions:
        pusher = pusher_of(subscription, able)
        if pusher is not None and pusher.name == name:
            found.add(subscription)
    return found

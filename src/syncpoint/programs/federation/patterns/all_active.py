"""all-active: the same topics live in several clusters, and whatever is published in one of them is in all.

k clusters come to k(k-1) links where every pair is linked. A cluster that writes results back writes them locally, like
any publisher, and they travel like any message.
"""

from __future__ import annotations

from dataclasses import replace

from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.graph import edges_of, origins_by_edge
from syncpoint.programs.federation.owned_keys.key_shares import policy_of
from syncpoint.programs.federation.patterns.pattern import Pattern
from syncpoint.programs.federation.spec import Federation, Task, schema

_KEYS = schema()["$defs"]["namespace"]["properties"]


def links(task: Task, federation: Federation) -> list[FederationLink]:
    """A link for each pair of clusters that is connected, carrying the origins whose way leads over it."""
    PATTERN.check(replace(task, keys={"pattern": task.pattern, **task.keys}))
    place = task.place
    edges = edges_of(task.keys["clusters"], task.keys.get("links", "mesh"), f"{place}.links")
    made = []
    for (one, other), origins in origins_by_edge(edges).items():
        if not origins:
            continue  # every way that uses it is longer than another
        made.append(
            FederationLink(
                name=f"{task.name}.{one}-{other}",
                pattern=task.pattern,
                source=federation.cluster(one, f"{place}.clusters"),
                target=federation.cluster(other, f"{place}.clusters"),
                source_project=task.keys["project"],
                target_project=task.keys["project"],
                topics=tuple(task.keys.get("topics", ["*"])),
                origins=tuple("" if origin == one else origin for origin in origins),
                change=task.change,
                acks=task.keys.get("acks", False),
                keys=policy_of(task.keys, place),
            )
        )
    return made


PATTERN = Pattern("all-active", {**_KEYS, "project": {"type": "string"}}, ("clusters", "project"), links)

"""What a seed's small simulation consists of."""

from __future__ import annotations

from dataclasses import dataclass

from syncpoint.base.runtime.random import Random

TOPIC, TOPIC_NUMBER = "projects/p/topics/orders", 1
DEAD, BRIEF = "projects/p/topics/dead", "projects/p/topics/brief"
FLEETING = "projects/p/topics/fleeting"  # whose messages live for some seconds
BURIED, DROPPED = (
    "projects/p/subscriptions/buried",
    "dropped",
)  # its subscriptions: one sends what ran out to the dead letters
LETTERS = "letters"  # the subscription of DEAD
PATIENT = "patient"  # the subscription whose clients acknowledge nothing before all has been delivered


@dataclass(frozen=True)
class Topology:
    """`spread`: every disk is served by a process of its own. `heavy`: large messages, many of them. `emptying`: the
    topic keeps nothing and runs empty again and again, and subscriptions are reset all the time. `lasting`: faults
    outlast grants and what anybody waits for. `entries`: so many fill a segment. `racks`: all clusters but one stand in
    one rack, what is acknowledged is in two; at the end that rack burns. `strict`: no message of any subscription that
    is there from the beginning may be with two forwarders at once. `seeking`: two subscriptions are reset, and the
    topic keeps nothing. `absent`: a subscription has clients at one forwarder at a time, which change. `sealing`: what
    is published is sealed under a key of the topic, so it is good for no other topic of that name. `room`: of so many
    bytes every disk consists, and nobody makes it larger; 0: it is never full by itself. `expiring`: there are messages
    that live for some seconds only.
    """

    clusters: int = 3
    disks: int = 3
    forwarders: int = 2
    subscribers: int = 1
    chains: int = 1
    durability: str = "sync"
    spread: bool = False
    heavy: bool = False
    emptying: bool = False
    lasting: bool = False
    entries: int = 40
    racks: bool = False
    strict: bool = False
    seeking: bool = False
    absent: bool = False
    sealing: bool = False
    room: int = 0
    expiring: bool = False

    @staticmethod
    def draw(random: Random) -> Topology:
        """Mostly small ones: they run faster, and most of what can go wrong goes wrong in them."""
        clusters, disks = ((1, 1), (1, 3), (1, 3), (3, 1), (3, 1), (3, 1), (3, 1), (3, 3))[random.randrange(0, 8)]
        async_ = (clusters, disks) != (1, 1) and random.random() < 0.25
        return Topology(
            clusters,
            disks,
            forwarders=2 + (random.random() < 0.3),
            subscribers=(1, 1, 2, 2, 3)[random.randrange(0, 5)],
            chains=1 + (random.random() < (0.4 if clusters * disks < 9 else 0.1)),
            durability="async" if async_ else "sync",
            spread=random.random() < 0.2,
            heavy=random.random() < 0.1,
        )

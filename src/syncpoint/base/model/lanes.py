"""Lanes: the copies of one message that the rules of a subscription make, each with an offset of its own.

A copy made by a rule is (source, offset, rule). The number of the rule's lane goes into the offset, in front of its 40
bits: so ledgers, leases, ack ids, attempts and everything between publish and subscribe forwarders hold copies apart as
they hold offsets apart. Lane 0 is the one copy that a subscription without rules receives. Message ids have no lane.
"""

from syncpoint.base.model.identity import OFFSET_END

LANE_BITS = 40
LANE_SIZE = 1 << LANE_BITS
LANES_END = 1 << (62 - LANE_BITS)  # an acknowledged set holds offsets below 2**62
assert OFFSET_END <= LANE_SIZE


def in_lane(lane: int, offset: int) -> int:
    """An offset of a source as the place of its copy in a lane."""
    return (lane << LANE_BITS) + offset


def lane_of(place: int) -> int:
    """The lane of a copy."""
    return place >> LANE_BITS


def place_in(place: int) -> tuple[int, int]:
    """A copy's lane, and the offset of its message in the source."""
    return place >> LANE_BITS, place & (LANE_SIZE - 1)


def ends_of(lane: int) -> tuple[int, int]:
    """All places of a lane, as a range."""
    return lane << LANE_BITS, (lane + 1) << LANE_BITS

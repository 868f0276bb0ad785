"""Lease holders: which subscribe forwarder leased a message, read off its ack id.

Several forwarders may serve one subscription, and only the one that lent a message knows its lease. So the epoch of its
lease tables, which every ack id carries, begins with sixteen bits that distinguish it from the others; whoever relays
ack ids, the proxy for instance, finds by them who must receive it. Two members of one subscription may share a number
by chance (one in 65,536): then both have to be asked, so a relay treats a number as a hint and not as a name.
"""

import base64
import hashlib
from collections.abc import Iterable

from syncpoint.base.kernel.leases import list_ids

LENDER_BITS = 16


def lender_of(member: str, incarnation: int) -> int:
    """The number of a subscribe forwarder; a restarted one has another."""
    digest = hashlib.blake2b(f"{member} {incarnation}".encode(), digest_size=2).digest()
    return int.from_bytes(digest, "little")


def table_epoch(lender: int, number: int) -> int:
    """The epoch of a forwarder's lease table, the `number`-th it made of one subscription, whose ids have a key of
    their own. It comes again after 65,536 tables; each lives for seconds at least, so ids of the first are days old.
    """
    return lender << (32 - LENDER_BITS) | number & (1 << 32 - LENDER_BITS) - 1


def is_of(lender: int, epoch: int) -> bool:
    """Whether a lease table of that epoch was, as far as one can say, one of this forwarder."""
    return epoch >> (32 - LENDER_BITS) == lender


def lender_in(ack_id: bytes) -> int | None:
    """Who lent the message of an ack id; None for a text that cannot be one."""
    if len(ack_id) != 48:
        return None
    try:
        raw = base64.b64decode(ack_id, altchars=b"-_", validate=True)
    except ValueError:
        return None
    return int.from_bytes(raw[22:24], "little")  # the upper half of the epoch: see kernel.ackids


def by_lender(request: bytes, field: int) -> dict[int | None, list[bytes]]:
    """The ack ids in a repeated string field of a raw request by who lent them. Raises `Malformed`."""
    return group(list_ids(request, field))


def group(ack_ids: Iterable[bytes]) -> dict[int | None, list[bytes]]:
    """Ack ids by who lent them, in their order."""
    found: dict[int | None, list[bytes]] = {}
    for one in ack_ids:
        found.setdefault(lender_in(one), []).append(one)
    return found

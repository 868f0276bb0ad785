"""Ack ids that say which site lent the message, so that any gateway brings them back there.

Place: under the relays. A tag of four characters stands in front of the ack id that the site gave; it is made of the
site's name alone, so a gateway that starts anew, or another one, reads it, whatever the order of sites in its file.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from syncpoint.base.model.errors import InvalidArgument, SyncpointError
from syncpoint.wire.protobuf.status import EXACTLY_ONCE_REASON, ack_outcomes, error_info

TAG_BYTES: Final = 4


def tag_of(name: str) -> bytes:
    """The tag of a site: three letters and a dot, which no letter of an ack id is."""
    digest = hashlib.blake2b(name.encode(), digest_size=3).digest()
    return base64.urlsafe_b64encode(digest)[:3] + b"."


def tags_of(names: Iterable[str]) -> dict[str, bytes]:
    """The tag of each site. Raises `InvalidArgument` where two have the same."""
    found: dict[bytes, str] = {}
    for name in names:
        other = found.setdefault(tag_of(name), name)
        if other != name:
            raise InvalidArgument("sites", f"{other!r} and {name!r} have the same tag in ack ids; rename one of them")
    return {name: tag for tag, name in found.items()}


def tagged_error(error: SyncpointError, tag: bytes) -> SyncpointError:
    """A site's error about single ack ids, with the ids as the client has them; any other error as it is."""
    outcomes = ack_outcomes(error)
    if not outcomes:
        return error
    ids = {tag.decode() + ack_id: outcome for ack_id, outcome in outcomes.items()}
    return SyncpointError(error.code, error.message, [error_info(EXACTLY_ONCE_REASON, ids)])


def merged_error(errors: Mapping[bytes, SyncpointError]) -> SyncpointError:
    """One error of those of several sites by tag: what they say of single ack ids is joined; any other comes first."""
    outcomes: dict[str, str] = {}
    for tag, error in errors.items():
        found = ack_outcomes(tagged_error(error, tag))
        if not found:
            return error
        outcomes |= found
    first = next(iter(errors.values()))
    return SyncpointError(first.code, first.message, [error_info(EXACTLY_ONCE_REASON, outcomes)])

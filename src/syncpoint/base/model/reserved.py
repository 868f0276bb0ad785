"""Names of attributes that mean something to the service, where several rooms have to know them; and counts among them,
which nothing that changes a message on its way can change.
"""

from collections.abc import Collection, Mapping, MutableMapping
from hashlib import blake2b

IDENTITY = "sys.MessageId"
"""What a publisher calls a message, by which topics may drop duplicates: see `publish.message_ids`."""

GIVEN, DERIVED = "gw-", "gw-of-"
"""How identities begin that a gateway gave, and those that sites derive of them: see `derive_identity`."""

FORWARDED_FROM = "sys.ForwardedFrom"
"""Which message one is that the service itself publishes again: see `publish.message_ids`."""

FORWARD_HOPS = "sys.ForwardHops"
"""How often a message was forwarded to another topic: see `forward`."""

LETTERS = "sys.DeadLetterCount"
"""How often a message became a dead letter since it was published or redriven: see `subscribe.dead_letter`."""

FORWARD_COPIES = "sys.ForwardCopies"
"""How many copies the service may still make of a message by itself: see `subscribe.own_copies`."""

COUNTS = (FORWARD_HOPS, LETTERS, FORWARD_COPIES)
"""Counts that end circles; code that changes a message on its way must keep them."""

SCHEDULED_ID = "sys.ScheduledMessageId"
"""The id under which a message was scheduled: see `publish.firing`."""


def derive_identity(attributes: MutableMapping[str, str], *made: object) -> None:
    """Give what the service makes of a message that two sites have an identity of its own, alike at both: whichever
    site makes it or copies it, it is one. `made`: what, and of which seek generation. A message without an
    identity of a gateway is left as it is.
    """
    before = attributes.get(IDENTITY, "")
    if before.startswith(GIVEN):
        text = "/".join(map(str, (*made, before)))
        attributes[IDENTITY] = DERIVED + blake2b(text.encode(), digest_size=16).hexdigest()


def count_of(attributes: Mapping[str, str], name: str) -> int:
    """A count that the service writes; 0 for a text that is not a count."""
    text = attributes.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def keep(names: Collection[str], before: Mapping[str, str], after: MutableMapping[str, str]) -> None:
    """Let a changed message have these attributes as it had them before, whatever was done to them."""
    for name in names:
        if name in before:
            after[name] = before[name]
        else:
            after.pop(name, None)

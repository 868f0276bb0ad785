"""Kinds of delivery records: what may be noted of a batch of messages.

Place: the words that forwarders note and readers look for (`client.message_path`, `analytics`); they are stored, so a
kind keeps its name for ever.
"""

from __future__ import annotations

from typing import Final

PUBLISHED: Final = "published"
"""Persisted, so that their publishers could be answered."""
FOUND: Final = "found"
"""Stored when a log was opened, or when recording began."""
DELIVERED: Final = "delivered"
"""Given to a subscriber. `attempt`: how often one came back before, of subscriptions that count that."""
RETURNED: Final = "returned"
"""Not a subscriber's any more, not acknowledged. `why`: nacked, deadline, unsent, gone, or `REVOKED`."""
ACKNOWLEDGED: Final = "acknowledged"
"""Acknowledged, by a subscriber or on its behalf, and persisted."""
PLACED: Final = "placed"
"""These count as acknowledged in a generation: by its sync point, a seek, or what was found when a log was opened."""
FILTERED: Final = "filtered"
"""Left out by the subscription's filter or rules."""
EXPIRED: Final = "expired"
"""Outlived their time to live, or the retention."""
MOVED: Final = "moved"
"""Acknowledged by the service itself, once it had published them again: an expired letter, or a redrive."""
VOID: Final = "void"
"""Of a batch that another chain has stored, too: nobody gets them from here."""
DEAD_LETTERED: Final = "dead-lettered"
"""Went to another topic, `to`, as `message_id`."""

STORED: Final = (PUBLISHED, FOUND)
"""By these a message is stored."""
OVER: Final = (FILTERED, EXPIRED, DEAD_LETTERED, MOVED, VOID, PLACED)
"""By these a subscription need not get it (any more)."""

REVOKED: Final = "revoked"
"""Why messages come back of which another forwarder is in charge now, or whose key has to wait."""

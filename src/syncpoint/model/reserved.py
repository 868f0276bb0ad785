"""Names of attributes that mean something to the service, where several rooms have to know them."""

FORWARDED_FROM = "sys.ForwardedFrom"
"""Which message one is that the service itself publishes again: see `publish.message_ids`."""

FORWARD_HOPS = "sys.ForwardHops"
"""How often a message was forwarded to another topic: see `forward`."""

SCHEDULED_ID = "sys.ScheduledMessageId"
"""The id under which a message was scheduled: see `publish.firing`."""

"""Every limit of the public API in one place, with its unit in its name.

Place: read by all code that validates requests. Sources: the field comments of google.pubsub.v1, the public quota page
of Pub/Sub, and what official clients compute with (they build requests of exactly the allowed size).
"""

# -- publishing ------------------------------------------------------------------------------------------------------
PUBLISH_REQUEST_BYTES_MAX = 10_000_000  # serialised PublishRequest; clients fill it to the byte
PUBLISH_MESSAGES_MAX = 1_000  # messages of one PublishRequest
PUBLISH_SEALED_ROOM_BYTES = PUBLISH_MESSAGES_MAX * 48  # what sealing the data in a proxy adds to a request at most
MESSAGE_ATTRIBUTES_MAX = 100  # attributes of one message
ATTRIBUTE_KEY_BYTES_MAX = 256  # UTF-8 bytes; at least 1
ATTRIBUTE_VALUE_BYTES_MAX = 1_024  # UTF-8 bytes
ORDERING_KEY_BYTES_MAX = 1_024  # UTF-8 bytes
SCHEDULE_AHEAD_SECONDS_MAX = 366 * 86_400  # how far ahead a message may be scheduled

# -- transport -------------------------------------------------------------------------------------------------------
RPC_REQUEST_BYTES_MAX = 20 * 1024 * 1024  # largest gRPC message accepted; clients are built with the same ceiling
RESOURCE_REQUEST_BYTES_MAX = 1 << 20  # of calls about topics, subscriptions, schemas, policies and options

# -- subscribing -----------------------------------------------------------------------------------------------------
ACK_REQUEST_BYTES_MAX = 512 * 1024  # documented size of Acknowledge and ModifyAckDeadline requests
TTL_SECONDS_MIN, TTL_SECONDS_MAX = 1, 10 * 365 * 86_400  # of a topic or subscription
DUPLICATE_WINDOW_SECONDS_MIN, DUPLICATE_WINDOW_SECONDS_MAX = 20, 7 * 86_400
ACK_DEADLINE_SECONDS_MIN = 10
ACK_DEADLINE_SECONDS_MAX = 600
ACK_DEADLINE_SECONDS_DEFAULT = 10
MODIFY_DEADLINE_SECONDS_MAX = 600  # ModifyAckDeadline accepts 0 (nack) to this
PULL_MESSAGES_MAX = 1_000  # messages of one Pull answer; larger max_messages are cut to this
RESPONSE_BYTES_MAX = 1 << 20  # of messages in one response; a larger message is one by itself
PULL_WAIT_SECONDS_MAX = 25.0  # a Pull without deadline answers empty after this (REST clients give up at 60)

# -- topics ----------------------------------------------------------------------------------------------------------
TOPIC_RETENTION_SECONDS_MIN = 10 * 60
TOPIC_RETENTION_SECONDS_MAX = 31 * 24 * 3_600

# -- subscriptions ---------------------------------------------------------------------------------------------------
SUBSCRIPTION_RETENTION_SECONDS_MIN = 10 * 60
SUBSCRIPTION_RETENTION_SECONDS_MAX = 31 * 24 * 3_600
SUBSCRIPTION_RETENTION_SECONDS_DEFAULT = 7 * 24 * 3_600
EXPIRATION_TTL_SECONDS_MIN = 24 * 3_600
EXPIRATION_TTL_SECONDS_DEFAULT = 31 * 24 * 3_600  # applied when no expiration policy is given at all
RETRY_BACKOFF_SECONDS_MAX = 600.0
RETRY_MINIMUM_BACKOFF_SECONDS_DEFAULT = 10.0
RETRY_MAXIMUM_BACKOFF_SECONDS_DEFAULT = 600.0
DELIVERY_ATTEMPTS_MIN = 5
DELIVERY_ATTEMPTS_MAX = 100
DELIVERY_ATTEMPTS_DEFAULT = 5
FILTER_BYTES_MAX = 256  # UTF-8 bytes of a subscription filter
SUBSCRIPTIONS_PER_TOPIC_MAX = 10_000

# -- snapshots -------------------------------------------------------------------------------------------------------
SNAPSHOT_LIFETIME_SECONDS_MAX = 7 * 24 * 3_600  # counted from the oldest unacknowledged message
SNAPSHOT_LIFETIME_SECONDS_MIN = 3_600  # CreateSnapshot is refused when less is left
SNAPSHOTS_PER_TOPIC_MAX = 5_000

# -- labels and lists ------------------------------------------------------------------------------------------------
LABELS_MAX = 64
LABEL_KEY_CHARACTERS_MAX = 63
LABEL_VALUE_CHARACTERS_MAX = 63
PAGE_SIZE_DEFAULT = 100
PAGE_SIZE_MAX = 1_000
PAGE_BYTES_MAX = 256 << 10  # of the records on a page, beyond the first one: official clients take 4 MiB in an answer
PAGE_TOKEN_BYTES_MAX = 2_048

"""A record of Kafka as the columns of a message, and back.

Place: on Spark, right after its Kafka source and in front of its Kafka sink; expressions, which the JVM compiles.
Promise: key, value and headers are kept, and where a record comes from stands in attributes that begin with `kafka.`.
A record becomes a message whatever is in it: what no attribute or ordering key can be is encoded, or left out and
counted in the message itself. What a message is known by travels in headers that begin with `syncpoint.`, so that one
that comes back has the same id, and is not copied to where it has been.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from syncpoint.base.model.limits import ATTRIBUTE_KEY_BYTES_MAX, ATTRIBUTE_VALUE_BYTES_MAX, ORDERING_KEY_BYTES_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HEADERS_MAX = 90  # a message has at most 100 attributes
NAME_BYTES_MAX = 256  # of a message id, and of a cluster's name
_PREFIX_BYTES_MAX = 200  # of a message id, before partition and offset
_VISITED_BYTES_MAX = 6400  # up to a hundred clusters' names of 63
_TEXT = "is_valid_utf8(CAST({0} AS STRING))"
_ENCODED_MAX = ATTRIBUTE_VALUE_BYTES_MAX * 3 // 4


def messages(frame: DataFrame, stream: str, topic: str) -> DataFrame:
    """Rows of Spark's Kafka source, with headers, as messages of a link. `stream`: its name in the file."""
    value = _TEXT.format("h.value")
    fits = (
        f"h.value IS NOT NULL AND octet_length(h.key) BETWEEN 1 AND {ATTRIBUTE_KEY_BYTES_MAX - len('.base64')}"
        f" AND octet_length(h.value) <= IF({value}, {ATTRIBUTE_VALUE_BYTES_MAX}, {_ENCODED_MAX})"
    )
    own = "(startswith(h.key, 'kafka.') OR startswith(h.key, 'syncpoint.'))"
    named = (
        f"struct(IF({value}, h.key, h.key || '.base64') AS key,"
        f" IF({value}, CAST(h.value AS STRING), base64(h.value)) AS value)"
    )
    frame = frame.selectExpr("*", "coalesce(headers, array()) AS all_headers").selectExpr(
        "*",
        f"filter(all_headers, h -> NOT {own}) AS others",
        *(
            f"CAST(try_element_at(filter(all_headers, h -> h.key = 'syncpoint.{name}'"
            f" AND {value} AND octet_length(h.value) <= {longest}), -1).value AS STRING) AS {column}"
            for name, column, longest in (
                ("message-id", "sent_id", NAME_BYTES_MAX),
                ("origin", "origin", NAME_BYTES_MAX),
                ("visited", "sent_visited", _VISITED_BYTES_MAX),
            )
        ),
    )
    frame = frame.selectExpr("*", f"transform(filter(others, h -> {fits}), h -> {named}) AS fitting")
    # Of several headers of one name the last one counts.
    last = "NOT exists(slice(fitting, i + 2, size(fitting)), x -> x.key = h.key)"
    frame = frame.selectExpr("*", f"slice(filter(fitting, (h, i) -> {last}), 1, {HEADERS_MAX}) AS kept")
    text_key = _TEXT.format("key")
    long_key = f"octet_length(key) > IF({text_key}, {ORDERING_KEY_BYTES_MAX}, {ORDERING_KEY_BYTES_MAX * 3 // 4})"
    fields = {
        "kafka.topic": "topic",
        "kafka.partition": "CAST(partition AS STRING)",
        "kafka.offset": "CAST(offset AS STRING)",
        "kafka.timestamp": "date_format(timestamp, \"yyyy-MM-dd'T'HH:mm:ss.SSSXXX\")",
        "kafka.key": f"CASE WHEN {long_key} THEN 'sha256' WHEN NOT {text_key} THEN 'base64' END",
        "kafka.tombstone": "IF(value IS NULL, 'true', NULL)",
        "kafka.headers-left-out": "nullif(CAST(size(others) - size(kept) AS STRING), '0')",
    }
    about = ", ".join(f"'{name}', {expression}" for name, expression in fields.items())
    return frame.selectExpr(
        f"coalesce(nullif(sent_id, ''), concat('{_id_prefix(stream, topic)}', partition, ':', offset)) AS message_id",
        "CAST(partition AS BIGINT) + 1 AS source",
        "offset",
        "CAST(NULL AS TIMESTAMP) AS publish_time",  # here and now: its own time may be past any retention
        "coalesce(value, X'') AS data",
        f"map_concat(map_from_entries(kept), map_filter(map({about}), (name, x) -> x IS NOT NULL)) AS attributes",
        f"CASE WHEN key IS NULL THEN '' WHEN {long_key} THEN sha2(key, 256)"
        f" WHEN {text_key} THEN CAST(key AS STRING) ELSE base64(key) END AS ordering_key",
        "origin",
        f"slice(filter(split(sent_visited, ','), x -> octet_length(x) BETWEEN 1 AND {NAME_BYTES_MAX}), 1, 99)"
        " AS visited",
    )


def _id_prefix(stream: str, topic: str) -> str:
    """What ids of messages of a topic begin with; names of Kafka's topics have no quotes."""
    found = f"{stream}:{topic}:"
    return found if len(found) <= _PREFIX_BYTES_MAX else f"{sha256(found.encode()).hexdigest()}:"


def records(frame: DataFrame, cluster: str) -> DataFrame:
    """A batch of messages that were read at a cluster, as records for Spark's Kafka sink; each key in its order."""
    from pyspark.sql.functions import expr

    fields = {
        "message-id": "message_id",
        "publish-time": "date_format(publish_time, \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\")",
        "origin": f"coalesce(nullif(origin, ''), '{cluster}')",
        "visited": f"concat_ws(',', visited, '{cluster}')",
    }
    about = ", ".join(
        f"struct('syncpoint.{name}' AS key, CAST({expression} AS BINARY) AS value)"
        for name, expression in fields.items()
    )
    others = (
        "transform(filter(map_entries(attributes), e -> NOT startswith(e.key, 'kafka.')),"
        " e -> struct(e.key AS key, CAST(e.value AS BINARY) AS value))"
    )
    # Tasks write side by side: all messages of a key go through one of them, in the order in which they were read.
    ordered = frame.repartition(expr("coalesce(nullif(ordering_key, ''), message_id)"))
    return ordered.sortWithinPartitions("source", "offset").selectExpr(
        "CASE WHEN ordering_key IS NULL OR ordering_key = '' THEN NULL"
        " WHEN attributes['kafka.key'] = 'base64' THEN unbase64(ordering_key)"
        " ELSE CAST(ordering_key AS BINARY) END AS key",
        "IF(attributes['kafka.tombstone'] = 'true', NULL, data) AS value",
        f"concat({others}, array({about})) AS headers",
    )

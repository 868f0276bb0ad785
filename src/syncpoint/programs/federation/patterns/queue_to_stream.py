"""queue-to-stream: messages of a topic become records of a Kafka topic, at least once.

Kafka keeps no record for us of what was copied, so what a killed job was just writing is written again; each record has
the message's id in a header, by which a reader drops what comes twice.
"""

from __future__ import annotations

from typing import Any

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.patterns.pattern import Pattern
from syncpoint.programs.federation.patterns.replicate import split_topic
from syncpoint.programs.federation.patterns.stream_to_queue import KAFKA_TOPIC, TOPIC_OF_CLUSTER
from syncpoint.programs.federation.spec import Federation, Task
from syncpoint.programs.federation.streams.stream_ends import KafkaStream

_KEYS: dict[str, Any] = {
    "from": TOPIC_OF_CLUSTER,
    "to": {
        "type": "object",
        "required": ["stream", "topic"],
        "additionalProperties": False,
        "properties": {"stream": {"$ref": "#/$defs/name"}, "topic": KAFKA_TOPIC},
    },
}


def links(task: Task, federation: Federation) -> list[FederationLink]:
    """The one link of the task."""
    PATTERN.check(task)
    place = task.place
    target = federation.stream(task.keys["to"]["stream"], f"{place}.to.stream")
    if not isinstance(target.stream, KafkaStream):
        raise InvalidArgument(f"{place}.to.stream", f"{target.name} is a folder of files; the target must be Kafka")
    project, short = split_topic(task.keys["from"]["topic"], f"{place}.from.topic")
    return [
        FederationLink(
            name=task.name,
            pattern=task.pattern,
            source=federation.cluster(task.keys["from"]["cluster"], f"{place}.from.cluster"),
            target=target,
            source_project=project,
            target_project="",
            topics=(short,),
            rename=task.keys["to"]["topic"],
            change=task.change,
        )
    ]


PATTERN = Pattern("queue-to-stream", _KEYS, ("from", "to"), links)

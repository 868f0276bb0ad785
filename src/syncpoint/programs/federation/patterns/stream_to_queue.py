"""stream-to-queue: a topic of Kafka, whole or some of its partitions, or the files of a folder, become messages.

Behind it are what a stream does not have: competing consumers, acknowledgements of single messages, rules, sessions.
"""

from __future__ import annotations

from typing import Any

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.patterns.by_message import STEP_KEYS, steps_of
from syncpoint.programs.federation.patterns.pattern import Pattern
from syncpoint.programs.federation.patterns.replicate import split_topic
from syncpoint.programs.federation.spec import Federation, Task
from syncpoint.programs.federation.streams.stream_ends import FileStream

KAFKA_TOPIC = {"type": "string", "pattern": "^[a-zA-Z0-9._-]{1,249}$", "description": "Name of a Kafka topic."}
FILES = "files"
"""What stands for the topic in the name of a flow that reads a folder."""
TOPIC_OF_CLUSTER: dict[str, Any] = {
    "type": "object",
    "required": ["cluster", "topic"],
    "additionalProperties": False,
    "properties": {
        "cluster": {"$ref": "#/$defs/name"},
        "topic": {"type": "string", "description": "Full name of a topic."},
    },
}
_KEYS: dict[str, Any] = {
    "from": {
        "type": "object",
        "required": ["stream"],
        "additionalProperties": False,
        "properties": {
            "stream": {"$ref": "#/$defs/name"},
            "topic": KAFKA_TOPIC,
            "partitions": {
                "type": "array",
                "minItems": 1,
                "uniqueItems": True,
                "items": {"type": "integer", "minimum": 0},
            },
        },
    },
    "to": TOPIC_OF_CLUSTER,
    **STEP_KEYS,
}


def links(task: Task, federation: Federation) -> list[FederationLink]:
    """The one link of the task."""
    PATTERN.check(task)
    place, keys = task.place, task.keys["from"]
    source = federation.stream(keys["stream"], f"{place}.from.stream")
    if isinstance(source.stream, FileStream):
        for name in ("topic", "partitions"):
            if name in keys:
                raise InvalidArgument(
                    f"{place}.from.{name}", f"{source.name} is a folder of files, which has no topics"
                )
        if task.change.start != "earliest":
            raise InvalidArgument(f"{place}.start", "a folder is always read whole; put new files into a new folder")
    elif "topic" not in keys:
        raise InvalidArgument(f"{place}.from.topic", f"set the topic of {source.name} to read")
    project, short = split_topic(task.keys["to"]["topic"], f"{place}.to.topic")
    if "{topic}" in short:
        raise InvalidArgument(
            f"{place}.to.topic",
            "must be a name without a placeholder, since the source name may not be a valid topic name",
        )
    return [
        FederationLink(
            name=task.name,
            pattern=task.pattern,
            source=source,
            target=federation.cluster(task.keys["to"]["cluster"], f"{place}.to.cluster"),
            source_project="",
            target_project=project,
            topics=(keys.get("topic", FILES),),
            rename=short,
            change=task.change,
            steps=steps_of(task, federation),
            partitions=tuple(sorted(keys.get("partitions", ()))),
        )
    ]


PATTERN = Pattern("stream-to-queue", _KEYS, ("from", "to"), links)

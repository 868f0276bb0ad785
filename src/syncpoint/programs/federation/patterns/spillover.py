"""spillover: two clusters share the work of a queue; what one of them gives up is tried by the other one, once.

Both have consumers. A dead letter of either becomes a message of the other's queue, with the attribute `replicated`.
One that has it already has failed at both, and goes to the auxiliary topic of the cluster that it is copied to: the
one at which it was published. So nothing goes to and fro, though links return what came through their target: a letter
has the same path recorded as the copy it was made of.
"""

from __future__ import annotations

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.names import NAME_RULE, parse_topic
from syncpoint.programs.federation.flow_plan import FederationLink
from syncpoint.programs.federation.patterns.active_passive import REPLICATED
from syncpoint.programs.federation.patterns.pattern import Pattern
from syncpoint.programs.federation.spec import Federation, Task
from syncpoint.programs.federation.steps.labelling import Label
from syncpoint.programs.federation.steps.routing import RouteByCondition
from syncpoint.programs.federation.steps.step import StepChain

DEAD_LETTERS, AUXILIARY = "{queue}-dead", "{queue}-auxiliary"
_TEMPLATE = {
    "type": "string",
    "pattern": r"\{queue\}",
    "description": "Topic id; {queue} is replaced by the id of the queue.",
}


def links(task: Task, federation: Federation) -> list[FederationLink]:
    """One for each queue in each direction."""
    PATTERN.check(task)
    first, second = task.keys["between"]
    found = []
    for queue in task.keys["queues"]:
        dead, auxiliary = (
            _topic_id(task, key, task.keys.get(key, otherwise), queue)
            for key, otherwise in (("dead_letters", DEAD_LETTERS), ("auxiliary", AUXILIARY))
        )
        if len({queue, dead, auxiliary}) < 3:
            raise InvalidArgument(
                f"{task.place}.auxiliary", "the queue, its dead-letter topic and the auxiliary topic must differ"
            )
        failed_at_both = RouteByCondition(
            ((f"attributes['{REPLICATED}'] IS NOT NULL", f"projects/{task.keys['project']}/topics/{auxiliary}"),),
            otherwise="",
            place=task.place,
        )
        for one, other in ((first, second), (second, first)):
            found.append(
                FederationLink(
                    name=f"{task.name}.{one}.{queue}",
                    pattern=task.pattern,
                    source=federation.cluster(one, f"{task.place}.between"),
                    target=federation.cluster(other, f"{task.place}.between"),
                    source_project=task.keys["project"],
                    target_project=task.keys["project"],
                    topics=(dead,),
                    rename=queue,
                    returns=True,
                    change=task.change,
                    steps=StepChain((failed_at_both, Label(REPLICATED, "1"))),
                )
            )
    return found


def _topic_id(task: Task, key: str, template: str, queue: str) -> str:
    short = template.replace("{queue}", queue)
    try:
        parse_topic(f"projects/{task.keys['project']}/topics/{short}")
    except InvalidArgument:
        raise InvalidArgument(f"{task.place}.{key}", f"{short!r} is not a topic id. {NAME_RULE}.") from None
    return short


PATTERN = Pattern(
    "spillover",
    {
        "between": {
            "type": "array",
            "minItems": 2,
            "maxItems": 2,
            "uniqueItems": True,
            "items": {"$ref": "#/$defs/name"},
        },
        "project": {"type": "string"},
        "queues": {
            "type": "array",
            "minItems": 1,
            "uniqueItems": True,
            "items": {"type": "string"},
            "description": "Ids of queues that exist in both clusters.",
        },
        "dead_letters": _TEMPLATE,
        "auxiliary": _TEMPLATE,
    },
    ("between", "project", "queues"),
    links,
)

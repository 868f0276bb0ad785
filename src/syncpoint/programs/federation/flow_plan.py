"""Links and flows: what is copied from where to where, worked out from a federation file.

Place: between the file and whatever runs it. A task becomes links by its pattern: from one cluster to another, for some
topics of a project. A link becomes flows, one for each topic that exists: a flow is what is copied, counted
and reported under one name.
Pure: which topics exist is asked by the caller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from syncpoint.programs.federation.owned_keys.key_shares import KeyPolicy
from syncpoint.programs.federation.spec import FederatedCluster, FieldChange
from syncpoint.programs.federation.steps.step import StepChain


@dataclass(frozen=True, slots=True)
class FederationLink:
    """One way from cluster to cluster; one of the two may be a stream of another system. `topics`: patterns of topic
    ids; `rename`: the id at the target, {topic} being the one at the source. `origins`: only copies that come from
    these clusters, "" standing for what was published at the source; None: everything. Nothing goes to a cluster that
    it came through, unless the link `returns` messages. `partitions`: those of a Kafka topic that are read; none: all.
    """

    name: str
    pattern: str
    source: FederatedCluster
    target: FederatedCluster
    source_project: str
    target_project: str
    topics: tuple[str, ...] = ("*",)
    rename: str = "{topic}"
    origins: tuple[str, ...] | None = None
    returns: bool = False
    change: FieldChange = field(default_factory=FieldChange)
    steps: StepChain = field(default_factory=StepChain)
    partitions: tuple[int, ...] = ()
    acks: bool = False  # acknowledgements and seeks are exchanged, too
    keys: KeyPolicy | None = None  # what becomes of ordering keys that sites own; None: as commands say

    @property
    def unchanged(self) -> bool:
        """Whether messages stay as they are and all go to one topic."""
        return self.change.unchanged and not self.steps and not self.streams

    @property
    def streams(self) -> bool:
        """Whether one of its ends is a stream of another system."""
        return self.source.stream is not None or self.target.stream is not None

    @property
    def named(self) -> list[str]:
        """The topics of a server that it is for by their full names, whether they exist or not."""
        ids = () if self.source.stream is not None else self.topics
        return [f"projects/{self.source_project}/topics/{one}" for one in ids if not any(mark in one for mark in "*?[")]

    @property
    def single(self) -> bool:
        """Whether it is for one topic, by its name."""
        return len(self.topics) == 1 and not any(mark in self.topics[0] for mark in "*?[")

    def flows(self, existing: Iterable[str]) -> list[Flow]:
        """A flow for each of these topics of the source (full names) that the link is for. Of a stream it is the one
        that the file names: what exists there is Spark's to see.
        """
        if self.source.stream is not None:
            (topic,) = self.topics
            return [Flow(f"{self.name}.{topic}", self, topic, f"projects/{self.target_project}/topics/{self.rename}")]
        head = f"projects/{self.source_project}/topics/"
        found = []
        for topic in sorted(existing):
            short = topic.removeprefix(head)
            if topic.startswith(head) and any(fnmatchcase(short, one) for one in self.topics):
                renamed = self.rename.format(topic=short)
                at_stream = self.target.stream is not None
                target = renamed if at_stream else f"projects/{self.target_project}/topics/{renamed}"
                found.append(Flow(f"{self.name}.{short}", self, topic, target))
        return found

    def flow_to(self, target_topic: str) -> Flow | None:
        """The flow of this link that writes to a topic (full name), also where its source topic does not exist; None:
        no flow does.
        """
        short, times = target_topic.rpartition("/")[2], self.rename.count("{topic}")
        read = self.topics[0]
        if times:
            begin = self.rename.index("{topic}")
            read = short[begin : begin + (len(short) - len(self.rename.replace("{topic}", ""))) // times]
        found = self.flows([f"projects/{self.source_project}/topics/{read}"])
        return next((one for one in found if one.target_topic == target_topic), None)


@dataclass(frozen=True, slots=True)
class Flow:
    """One topic on one link. Its name is that of the server's link, of the query its epochs belong to, and of the
    cursor.
    """

    name: str
    link: FederationLink
    source_topic: str
    target_topic: str


def absent_topics(
    links: Iterable[FederationLink], flows: Sequence[Flow], silent: Collection[str] = ()
) -> dict[str, str]:
    """Remarks, by task, on topics that the file names, that do not exist, and that none of the `flows` that
    there are will create. Of clusters that are `silent` nothing is known.
    """
    read = {(flow.link.name, flow.source_topic) for flow in flows}
    written = {(flow.link.target.name, one) for flow in flows for one in (flow.target_topic, *flow.link.steps.topics)}
    found: dict[str, str] = {}
    for link in links:
        missing = [one for one in link.named if (link.name, one) not in read and (link.source.name, one) not in written]
        if missing and link.source.name not in silent:
            what = "topic" if len(missing) == 1 else "topics"
            found[f"task {link.name}"] = (
                f"{link.source.name} has no {what} {', '.join(missing)}; the flow starts once it exists"
            )
    return found

"""Classes of disaster recovery: what each promises, where one is declared, and what that makes of a topic.

Place: under `tenant_book`, which finds the class of a project; changed by `front.api.project_admin`.
Promise: a topic's record holds what its class demands, so nobody asks on the path of a message: while another site
writes, the topic is suspended for sending; where this one does, links are refused by `broker.pipeline`. What users had
set before a class took it over is as it was once the class is given up. Delivery records stay: they are data.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final, NamedTuple

from syncpoint.base.model.errors import InvalidArgument
from syncpoint.base.model.names import project_of
from syncpoint.catalog.metadata.entity_options import HELD_ELSEWHERE, HERE, NO_WRITER, WRITTEN_ELSEWHERE
from syncpoint.catalog.metadata.records import Setting, Topic

PREFIX: Final = "disaster-class:"
RECONCILED: Final = "reconciled:"
"""Settings with the last reconciliation of each project."""
RECONCILED_EVERY_S: Final = 26 * 3600.0
"""A day, and time to do it."""
RECORDS_ID: Final = "delivery-records"
"""The topic of a billing project that records go to by default."""
RECORDS_RETENTION_S: Final = 7 * 86_400
BILLING: Final = "billing"
WRITERS: Final = ("here", "elsewhere", "recovering")


class ClassTerms(NamedTuple):
    """What a class does, what that buys, and what it costs."""

    name: str
    does: str
    buys: str
    costs: str


TERMS: Final = {
    one.name: one
    for one in (
        ClassTerms("local", "one site", "survives the loss of disks and machines, and of a zone", "nothing more"),
        ClassTerms(
            "geo",
            "links copy to the other sites",
            "survives the loss of a site, but for what was not copied yet",
            "twice the bytes, and a federation that runs",
        ),
        ClassTerms(
            "geo-acks",
            "as geo, and acknowledgements and seeks, both ways",
            "as geo, and consumers that move get again only what was under way",
            "as geo, and a call to each end in each round",
        ),
        ClassTerms(
            "dual",
            "each publish to two sites at once, by a gateway; links fill what one site lacks",
            "loses nothing with a site",
            "twice the publishes",
        ),
        ClassTerms(
            BILLING,
            "one site writes, a second writer is refused; delivery records, reconciled each day",
            "no message is taken twice; each is traceable",
            "delivery records; at the loss of a site, waiting for a decision who writes",
        ),
    )
}
"""In the order in which they are shown."""
LINKED: Final = ("geo", "geo-acks", "dual", BILLING)
"""Classes that need links between sites."""


class DeclaredClass(NamedTuple):
    """A class, the site that takes publishes (of billing), and the level that it is declared at."""

    name: str = "local"
    writer: str = ""
    source: str = "installation"
    since_ns: int = 0

    @property
    def records(self) -> bool:
        """Whether topics must have delivery records."""
        return self.name == BILLING

    def setting(self, resource: str) -> Setting:
        """The form that is stored."""
        return Setting(PREFIX + resource, json.dumps([self.name, self.writer, self.since_ns]).encode())


UNDECLARED: Final = DeclaredClass()


def declared(name: str, writer: str) -> DeclaredClass:
    """The class of this name. Raises `InvalidArgument` where there is none."""
    if name not in TERMS:
        raise InvalidArgument("disaster_class.name", f"{name[:100]!r} is not a class; choose from {', '.join(TERMS)}")
    if writer and name != BILLING:
        raise InvalidArgument("disaster_class.writer", f"only {BILLING} has one writer; leave it empty for {name}")
    if writer and writer not in WRITERS:
        raise InvalidArgument("disaster_class.writer", f"must be {', '.join(WRITERS)}, or empty for here")
    return DeclaredClass(name, writer or "here" if name == BILLING else "")


def read_class(resource: str, value: bytes) -> DeclaredClass:
    """A stored class, of server, tenants/NAME or projects/P."""
    name, writer, since_ns = json.loads(value)
    levels = {"tenants": "tenant", "projects": "project"}
    return DeclaredClass(name, writer, levels.get(resource.partition("/")[0], "installation"), since_ns)


def records_topic_of(project: str) -> str:
    """The name of the topic that records of projects/P go to by default."""
    return f"{project}/topics/{RECORDS_ID}"


def as_demanded(record: Topic, one: DeclaredClass, *, takes_records: bool) -> Topic:
    """The topic as the class of its project demands it. `takes_records`: other topics record to it."""
    options = record.options
    takes_records |= record.name == records_topic_of(project_of(record.name))
    if one.records and not options.records_topic and not takes_records:
        options = options._replace(records_topic=records_topic_of(project_of(record.name)))
        record = replace(record, records_author=None)  # nobody chose it, so nobody's rights are asked
    elsewhere = one.writer == "elsewhere" and not takes_records
    if elsewhere and options.writer not in (WRITTEN_ELSEWHERE, HELD_ELSEWHERE):
        writer = HELD_ELSEWHERE if options.send_suspended else WRITTEN_ELSEWHERE
        options = options._replace(writer=writer, send_suspended=True)
    elif not elsewhere:
        if options.writer in (WRITTEN_ELSEWHERE, HELD_ELSEWHERE):
            options = options._replace(send_suspended=options.writer == HELD_ELSEWHERE)
        writer = HERE if one.writer == "here" and not takes_records else NO_WRITER
        options = options._replace(writer=writer)
    return record if options == record.options else replace(record, options=options)

"""What a server does by itself: under an identity of its own, which needs grants like any other, and for as long as
the caller who set where messages go may still do so.

Place: asked by subscribe forwarders before a message is given up into a dead letter topic, by pushes, exports and
forwards before they read and while they do, by recorders before they publish, and by transforms that ask a model as a
service account.
Promise: without a grant nothing is done in somebody's name; the message is offered again instead, or refused to its
publisher, and nothing is lost.
An answer stands for `STANDS_S` while the catalog and the file of `--auth` stay as they are, and for `FRESH_S` whatever
changes: so what was taken back counts within seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from syncpoint.base.model.names import DEAD_LETTERS_REFUSED, FORWARDING_REFUSED, READING_REFUSED
from syncpoint.base.runtime.clock import Clock
from syncpoint.catalog.access.accounts import Accounts
from syncpoint.catalog.access.authors import (
    PUBLISH,
    Authors,
    delivery_needs,
    letter_needs,
    records_needs,
    transform_needs,
)
from syncpoint.catalog.access.gate import STANDS_S
from syncpoint.catalog.access.permission_needs import CONSUME, Need
from syncpoint.catalog.access.policy import ALL_AUTHENTICATED, ALL_USERS, Policies
from syncpoint.catalog.access.quotas import CpuQuota, project_in
from syncpoint.catalog.access.settings import AuthSettings
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import Author, Subscription, Topic

_Record = TypeVar("_Record", Topic, Subscription, Topic | Subscription)
FRESH_S = 1.0
ANSWERS_MAX = 100_000


class ServiceIdentity:
    """Decide what the server may do on its own behalf, such as forwarding.

    Each check returns the reason for a refusal with advice, or "" if it is allowed.
    """

    def __init__(
        self,
        settings: Callable[[], AuthSettings],
        policies: Policies,
        accounts: Accounts,
        catalog: Catalog,
        clock: Clock,
        cpu: CpuQuota,
    ) -> None:
        self._settings, self._policies, self._catalog, self._clock = settings, policies, catalog, clock
        self._authors, self._cpu = Authors(settings, accounts), cpu
        self._answers: dict[tuple[str, int], tuple[Topic | Subscription, float, int, str]] = {}
        self._seen: tuple[int, AuthSettings] | None = None  # what the answers of `_change` go by
        self._change = 0

    def delivery_refusal(self, record: Subscription) -> str:
        """Why messages of a subscription may not be pushed, exported or forwarded to where they go, as remembered."""
        return self._answer("delivery", record, self.ask_delivery)

    def letter_refusal(self, record: Subscription) -> str:
        """Why messages of a subscription may not go to its dead letter topic, as remembered; also where it has none."""
        return self._answer("letters", record, self.ask_letters)

    def records_refusal(self, record: Topic) -> str:
        """Why delivery records of a topic may not go to where they go, as remembered."""
        return self._answer("records", record, self.ask_records)

    def acting_refusal(self, record: Topic | Subscription) -> str:
        """Why transforms may not ask models as the service account that they name, as remembered."""
        return self._answer("transforms", record, self.ask_acting)

    def _answer(self, about: str, record: _Record, ask: Callable[[_Record], str]) -> str:
        now, revision, settings = self._clock.monotonic(), self._catalog.revision, self._settings()
        if self._seen is None or self._seen[0] != revision or self._seen[1] is not settings:
            self._seen, self._change = (revision, settings), self._change + 1
        key = about, record.incarnation
        known = self._answers.get(key)
        if known is not None:
            asked_of, asked_at, change, answer = known
            if asked_of is record and now - asked_at < (STANDS_S if change == self._change else FRESH_S):
                return answer
        answer = ask(record)
        if len(self._answers) >= ANSWERS_MAX:
            self._answers.clear()
        self._answers[key] = record, now, self._change, answer
        return answer

    def ask_delivery(self, record: Subscription) -> str:
        """`delivery_refusal` as it is now, for a caller who has just granted what was lacking."""
        me = self._settings().service_identity
        if not self._holds(me, CONSUME, record.name):
            return READING_REFUSED
        if record.options.forward_to and not self._holds(me, PUBLISH, record.options.forward_to):
            return FORWARDING_REFUSED
        lacking = self._lacking(
            record.delivery_author,
            "set the destination of this subscription's messages",
            delivery_needs(record, self._catalog),
        )
        return f"{lacking} Until then messages wait." if lacking else ""

    def ask_letters(self, record: Subscription) -> str:
        """`letter_refusal` as it is now, for a caller who has just granted what was lacking."""
        if record.dead_letter is None:
            return f"{record.name} has no dead-letter policy. Set one first."
        me = self._settings().service_identity
        if not (self._holds(me, PUBLISH, record.dead_letter.topic) and self._holds(me, CONSUME, record.name)):
            return DEAD_LETTERS_REFUSED
        lacking = self._lacking(
            record.letter_author, "set the dead-letter topic of this subscription", letter_needs(record)
        )
        return f"{lacking} Until then messages are delivered again instead." if lacking else ""

    def ask_records(self, record: Topic) -> str:
        """`records_refusal` as it is now; "" where none are made."""
        if not record.options.records_topic:
            return ""
        set_what = "set the records topic of this topic"
        lacking = self._lacking(record.records_author, set_what, records_needs(record))
        return f"{lacking} Until then records wait; once the buffer is full, they are dropped." if lacking else ""

    def ask_acting(self, record: Topic | Subscription) -> str:
        """`acting_refusal` as it is now; "" where no service account is named."""
        is_topic = isinstance(record, Topic)
        set_what = f"set the service account of the transforms of this {'topic' if is_topic else 'subscription'}"
        lacking = self._lacking(record.transform_author, set_what, transform_needs(record, self._catalog))
        then = "messages are refused" if is_topic else "messages are delivered again instead"
        return f"{lacking} Until then {then}." if lacking else ""

    def _lacking(self, author: Author | None, set_what: str, needs: Iterable[Need]) -> str:
        """The permission that the author of a setting lost, and what to do; "" if none is missing."""
        for one in needs:
            if author is not None and not self._holds(author, one.permission, one.resource):
                return (
                    f"PERMISSION_DENIED: {self._authors.described(author)} {set_what} and no longer has"
                    f" {one.permission} on {one.named or one.resource}. Grant it, or let a caller who has it set that"
                    " again."
                )
        return ""

    def _holds(self, who: str | Author, permission: str, resource: str) -> bool:
        if isinstance(who, Author):
            if self._authors.is_owner(who):
                return True
            members = self._authors.members(who)
        else:
            members = frozenset((who, f"domain:{who.rpartition('@')[2]}", ALL_AUTHENTICATED, ALL_USERS))
        began = time.perf_counter()
        allowed, passing = self._policies.verdict(members, permission, resource, self._clock.time_ns() / 1e9)
        if passing and (project := project_in(resource)):  # it hung on conditions
            self._cpu.charge(project, time.perf_counter() - began)
        return allowed

"""Authors: the callers who set where messages or delivery records go, or as whom a model is asked, and whose rights are
checked again when that happens.

Place: `gate` sets who calls while a method begins, `api` stores that with the topic or subscription, `services` asks
what is needed of the author for as long as something is pushed, exported, forwarded, given up, recorded or asked.
Promise: what is needed is what the method asked that set it. An account that was deleted has nothing, even if another
account has its address now. Groups are those that the author's token named: nobody knows later who has left one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Final

from syncpoint.catalog.access.accounts import Accounts
from syncpoint.catalog.access.permission_needs import Need, acting_needs
from syncpoint.catalog.access.policy import ALL_AUTHENTICATED, ALL_USERS
from syncpoint.catalog.access.settings import AuthSettings
from syncpoint.catalog.access.tokens import ANONYMOUS, Identity
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.message_rules import accounts_asked_as
from syncpoint.catalog.metadata.records import Author, Subscription, Topic
from syncpoint.wire.protobuf.messages import pubsub

PUBLISH: Final = "pubsub.topics.publish"
UPDATE: Final = "pubsub.subscriptions.update"
UPDATE_TOPIC: Final = "pubsub.topics.update"
_NOBODY: Final[frozenset[str]] = frozenset()
_calling: ContextVar[tuple[Identity, Callable[[], None]] | None] = ContextVar("calling", default=None)


@contextmanager
def called_by(identity: Identity, judge_again: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Name the caller of what begins in here, tasks included; `judge_again` raises if the caller may no longer."""
    token = _calling.set((identity, judge_again))
    try:
        yield
    finally:
        _calling.reset(token)


def caller() -> Author | None:
    """The caller of the method that runs; None where callers are not identified."""
    calling = _calling.get()
    return None if calling is None else author_of(calling[0])


def judge_caller() -> None:
    """Judge the call that runs by the catalog as it is now; to be called where the catalog may have caught up since.

    Raises `PermissionDenied` and `Unauthenticated`; returns where callers are not identified.
    """
    if (calling := _calling.get()) is not None:
        calling[1]()


def author_of(identity: Identity) -> Author:
    """What is stored of a caller."""
    if identity is ANONYMOUS:
        return Author(ALL_USERS)
    principal = f"{identity.principal}?uid={identity.uid}" if identity.uid else identity.principal
    return Author(principal, tuple(sorted(one for one in identity.members if one.startswith("group:"))))


def shown(author: Author | None) -> str:
    """An author as callers read it; "" for none."""
    return "" if author is None else author.principal.partition("?uid=")[0]


class Authors:
    """Those of a catalog, under the settings in force."""

    def __init__(self, settings: Callable[[], AuthSettings], accounts: Accounts) -> None:
        self._settings, self._accounts = settings, accounts

    def members(self, author: Author) -> frozenset[str]:
        """What bindings call the author now; nothing: it is an account that is no more."""
        principal, _, uid = author.principal.partition("?uid=")
        if principal == ALL_USERS:
            return frozenset((ALL_USERS,))
        if uid:
            account = self._accounts.find(principal.partition(":")[2])
            if account is None or account.uid != uid:
                return _NOBODY
            return self._accounts.members(account) | {ALL_AUTHENTICATED, ALL_USERS}
        domain = f"domain:{principal.rpartition('@')[2]}"
        return frozenset((principal, domain, ALL_AUTHENTICATED, ALL_USERS, *author.groups))

    def is_owner(self, author: Author) -> bool:
        """Whether the file of --auth lets the author do everything."""
        return "?uid=" not in author.principal and not self._settings().owners.isdisjoint(self.members(author))

    def described(self, author: Author) -> str:
        """As a refusal calls it."""
        return shown(author) if self.members(author) else f"deleted:{author.principal}"


def delivery_needs(record: Subscription, catalog: Catalog) -> list[Need]:
    """What setting where messages are pushed, exported or forwarded asks of its author."""
    needs = [Need(UPDATE, record.name)]
    if record.options.forward_to:
        needs.append(Need(PUBLISH, record.options.forward_to))
    elif record.config:
        needs += acting_needs(_acting_as(record.config), catalog)
    return needs


def letter_needs(record: Subscription) -> list[Need]:
    """What setting where dead letters go asks of its author."""
    if record.dead_letter is None:
        return []
    return [Need(UPDATE, record.name), Need(PUBLISH, record.dead_letter.topic)]


def records_needs(record: Topic) -> list[Need]:
    """What setting where delivery records go asks of its author."""
    return [Need(UPDATE_TOPIC, record.name), Need(PUBLISH, record.options.records_topic)]


def transform_needs(record: Topic | Subscription, catalog: Catalog) -> list[Need]:
    """What setting as whom models are asked asks of its author; nothing: as nobody."""
    emails = accounts_asked_as(record.transforms)
    update = UPDATE_TOPIC if isinstance(record, Topic) else UPDATE
    return [Need(update, record.name), *acting_needs(emails, catalog)] if emails else []


@lru_cache(maxsize=4_096)
def _acting_as(config: bytes) -> tuple[str, ...]:
    message = pubsub.Subscription.FromString(config)
    sent = (message.push_config.oidc_token, message.cloud_storage_config)
    return tuple(one.service_account_email for one in sent if one.service_account_email)

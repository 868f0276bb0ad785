"""What a server keeps of a federation that several programs share: who runs it, until when, and what people decided.

Place: settings of the catalog, read and replaced by `front.api.federation_admin`. The same record is kept at every
cluster of a federation; programs compare them (`programs.federation.term`).
Promise: the greatest (term, holder) holds until its time is up. Two holders for a while are possible, when clusters
cannot reach each other, and lose nothing: flows fence each other at their targets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Setting

PREFIX = "federations/"
FEDERATIONS_MAX = 100
FORGOTTEN_NS = 31 * 86_400 * 1_000_000_000
"""A record untouched for this long may give way to another one."""


@dataclass(frozen=True, slots=True)
class SharedFederation:
    """`until_ns`, `touched_ns`: nanoseconds since 1970; `version`: of `state`, a text only the programs understand."""

    holder: str = ""
    term: int = 0
    until_ns: int = 0
    version: int = 0
    state: str = ""
    touched_ns: int = 0

    def held(self, holder: str, term: int, ttl_ns: int, now_ns: int) -> SharedFederation:
        """The record after somebody asked to hold it; unchanged if that is refused. A `ttl_ns` of 0 gives it back."""
        if holder == self.holder and term == self.term:
            allowed = True
        elif now_ns < self.until_ns:
            allowed = (term, holder) > (self.term, self.holder)
        else:
            allowed = term > self.term  # who has not seen the last term looks first
        if not allowed or (not ttl_ns and holder != self.holder):
            return self
        return replace(self, holder=holder, term=term, until_ns=now_ns + ttl_ns, touched_ns=now_ns)

    def stated(self, version: int, state: str, now_ns: int) -> SharedFederation:
        """The record with another state, if that is newer than its own."""
        if (version, state) <= (self.version, self.state):
            return self
        return replace(self, version=version, state=state, touched_ns=now_ns)


def find(catalog: Catalog, name: str) -> SharedFederation:
    """The record of projects/P/federations/F; an empty one where there is none."""
    stored = catalog.setting(PREFIX + name)
    return SharedFederation() if stored is None else SharedFederation(**json.loads(stored))


def changes_of(catalog: Catalog, name: str, record: SharedFederation) -> Iterator[CatalogChange]:
    """The changes that keep a record. One that is new takes the place of those that nobody has touched for a month."""
    yield CatalogChange.put(Setting(PREFIX + name, json.dumps(asdict(record)).encode()))
    if catalog.setting(PREFIX + name) is None:
        for other in catalog.settings_named(PREFIX):
            if find(catalog, other.removeprefix(PREFIX)).touched_ns < record.touched_ns - FORGOTTEN_NS:
                yield CatalogChange.delete(Setting(other))

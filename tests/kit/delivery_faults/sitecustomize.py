"""Makes a server do wrong with messages of subscriptions called `faulty`: each message by its offset, in one way.

Place: first on PYTHONPATH of a server's process, which imports it when it starts. What is broken is what forwarders do;
what they note, and the records, are as ever.
"""

from __future__ import annotations

import sys

SKIPPED, DROPPED, FORGOTTEN, LENT_TWICE = 3, 5, 7, 9
"""Never lent; acknowledged by nobody who had it; its acknowledgement is persisted, and not remembered; lent twice."""


def spoil() -> None:
    from syncpoint.base.kernel.acks import decode_runs, encode_runs
    from syncpoint.broker.publish.facts.ledgers import Ledgers
    from syncpoint.broker.subscribe.lease_batches import BatchLeasing

    lease, acknowledge = BatchLeasing.lease, Ledgers.acknowledge
    again: set[int] = set()

    def bad_lease(self, batch, *args, **more):  # type: ignore[no-untyped-def]
        if not self._state.record.name.endswith("/faulty"):
            return lease(self, batch, *args, **more)
        skip = bytearray(batch.skip or bytes((batch.end - batch.first_offset + 7) // 8))
        for offset in (SKIPPED, DROPPED):
            at = offset - batch.first_offset
            if batch.begin <= offset < batch.end:
                skip[at >> 3] |= 1 << (at & 7)
                if offset == DROPPED:
                    self._leases.drop(batch.source, encode_runs([(offset, 1)]))
        response, at, count, nbytes = lease(self, batch._replace(skip=bytes(skip)), *args, **more)
        if batch.begin <= LENT_TWICE < at and batch.source not in again:
            again.add(batch.source)
            self._state.table.revoke(batch.source, LENT_TWICE)
            one = batch._replace(begin=LENT_TWICE, end=LENT_TWICE + 1)
            second, _, more_messages, more_bytes = lease(self, one, *args, **more)
            return response + second, at, count + more_messages, nbytes + more_bytes
        return response, at, count, nbytes

    def bad_acknowledge(self, subscription, generation, source, runs):  # type: ignore[no-untyped-def]
        record = self.get(subscription)
        if FAULTY and record is not None and subscription in FAULTY:
            kept = []
            for begin, length in decode_runs(runs):
                kept += [(at, 1) for at in range(begin, begin + length) if at != FORGOTTEN]
            if not kept:
                kept = [(0, 1)]
            return acknowledge(self, subscription, generation, source, encode_runs(kept))
        return acknowledge(self, subscription, generation, source, runs)

    from syncpoint.catalog.metadata.catalog import Catalog

    put = Catalog._put

    def watch(self, record):  # type: ignore[no-untyped-def]
        if record.name.endswith("/faulty"):
            FAULTY.add(record.incarnation)
        put(self, record)

    BatchLeasing.lease = bad_lease  # type: ignore[method-assign]
    Ledgers.acknowledge = bad_acknowledge  # type: ignore[method-assign]
    Catalog._put = watch  # type: ignore[method-assign]


FAULTY: set[int] = set()
if {"serve", "run", "syncpoint.node.workers.worker"} & set(sys.orig_argv):
    spoil()

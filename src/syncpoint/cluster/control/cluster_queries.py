"""Questions to everybody who knows a part of the answer: chains' owners, subscribe forwarders, storage processes.

Place: under the administration of a cluster (`api.cluster_admin`).
Promise: an answer comes within the deadline, with whatever was reported until then; who did not answer is named, with
what only they could have reported.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from syncpoint.base.model.cluster import PROXY, PUBLISH, STORAGE, SUBSCRIBE
from syncpoint.base.model.errors import SyncpointError, Unavailable
from syncpoint.catalog.metadata.contract import StoreError
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.failure_domains import DomainFailure, FailureDomains, ForeseenRisks, domains_of
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.cluster.control.registration import registered_chains
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import internal

Answer = TypeVar("Answer")
DEADLINE_S = 2.0
OWNER_S = 10.0
_PAUSE_S = 0.1
_LEAST_S = 0.2  # to answer in, however late it is


class Outstanding(NamedTuple):
    """What is out with subscribers."""

    messages: int
    bytes: int
    subscribers: int
    leaving: int


class ClusterQueries:
    """Query the processes that each know a part of an answer.

    Only `peek`, `acknowledge_seen`, `receipt` and the methods for scheduled messages raise `SyncpointError`.
    """

    def __init__(self, view: ClusterView, peers: PeerChannels, *, deadline_s: float = DEADLINE_S) -> None:
        self._view, self._peers, self._deadline_s = view, peers, deadline_s

    async def chains(
        self, topic: int, subscription: int = 0, ranges_max: int = 0
    ) -> tuple[list[internal.DescribedChain], list[str]]:
        """What each chain of a topic holds of it (DescribedChain, by number), and who did not report."""
        return await self._described(
            internal.DescribeRequest(topic=topic, subscription=subscription, ranges_max=ranges_max)
        )

    async def seek_changes(
        self, topic: int, seek: internal.ForeseenSeek
    ) -> tuple[list[internal.DescribedChain], list[str]]:
        """What a seek would change in each chain of a topic, and who did not report."""
        return await self._described(internal.DescribeRequest(topic=topic, seek=seek))

    async def _described(self, request: internal.DescribeRequest) -> tuple[list[internal.DescribedChain], list[str]]:
        end = self._now() + self._deadline_s
        found: dict[int, internal.DescribedChain] = {}
        unknown: list[str] = []
        try:
            wanted = set(await registered_chains(self._view.store, request.topic))
        except StoreError as error:
            wanted = {int(key) for key in self._view.owners.items}
            unknown.append(f"the metadata: {error}; further chains may hold messages of this topic")
        why: dict[int, str] = {}
        while missing := wanted - found.keys():
            owners = {chain: owner for chain in missing if (owner := self._view.owner(chain)) is not None}
            answers, failed = await self._ask(
                {owner.address for owner in owners.values()}, methods.CHAINS.Describe, request.SerializeToString(), end
            )
            for answer in answers.values():
                found |= {one.chain: one for one in internal.DescribeResponse.FromString(answer).chains}
            why = {
                chain: f"{owners[chain].member} does not report ({failed[owners[chain].address]})"
                if chain in owners and owners[chain].address in failed
                else "no process has it open now"
                for chain in wanted - found.keys()
            }
            if self._now() >= end:
                break
            if why:
                await asyncio.sleep(_PAUSE_S)
        unknown += [f"chain {chain}: {reason}" for chain, reason in sorted(why.items())]
        unknown += [f"chain {number}: {one.unreadable}" for number, one in sorted(found.items()) if one.unreadable]
        return [found[chain] for chain in sorted(found) if chain in wanted], unknown

    async def peek(self, chain: int, request: internal.PeekRequest) -> internal.PeekResponse:
        """Messages of a source, from who has its chain open. Raises `SyncpointError`."""
        answer = await self._ask_owner(chain, methods.CHAINS.Peek, request.SerializeToString())
        return internal.PeekResponse.FromString(answer)

    async def receipt(self, chain: int, request: internal.ReceiptRequest) -> internal.ReceiptResponse:
        """Which disks hold a message, by the names that operators know them by. Raises `SyncpointError`."""
        answer = await self._ask_owner(chain, methods.CHAINS.Receipt, request.SerializeToString())
        found = internal.ReceiptResponse.FromString(answer)
        record = self._view.chains.get(str(chain))
        places = record.places if record is not None else ()
        names = {f"/{one.cluster}/{one.disk}": f"{one.process}/{one.disk}" for one in places}
        for copy in found.copies:
            copy.folder = names.get(copy.folder, copy.folder)
        return found

    def domains(self) -> FailureDomains:
        """What may vanish."""
        return domains_of(self._view)

    async def at_risk(self, failures: Sequence[DomainFailure]) -> ForeseenRisks:
        """What failures would do to every chain there is, by their owners, and what every subscribe forwarder has lent.
        Chains whose owner does not answer are unknown.
        """
        owners = {int(number): seen.value for number, seen in self._view.owners.items.items()}
        members = {one.address: one.name for one in self._view.with_role(SUBSCRIBE)}
        asked = {owner.address: owner.member for owner in owners.values()}
        questions = (
            self._peers.call(address, methods.CHAINS.AtRisk, _risk_request(failures, member), timeout_s=OWNER_S)
            for address, member in sorted(asked.items())
        )
        listing, end = internal.LentRequest().SerializeToString(), self._now() + OWNER_S
        answers, (lent, silent) = await asyncio.gather(
            asyncio.gather(*questions, return_exceptions=True),
            self._ask(members, methods.DELIVERIES.ListLent, listing, end),
        )
        found: dict[int, internal.ChainRisk] = {}
        why: dict[str, str] = {}
        for address, answer in zip(sorted(asked), answers, strict=True):
            if isinstance(answer, bytes):
                found |= {one.chain: one for one in internal.AtRiskResponse.FromString(answer).chains}
            elif isinstance(answer, SyncpointError):
                why[address] = answer.message
            else:
                raise answer
        unknown = []
        for number in sorted(int(key) for key in self._view.chains.items):
            if number not in found:
                owner = owners.get(number)
                said = "no process has it open now" if owner is None else why.get(owner.address, "it is not open there")
                unknown.append(f"chain {number}: {said if owner is None else f'{owner.member}: {said}'}")
        unknown += [
            f"{members[address]} does not report its outstanding messages ({said})" for address, said in silent.items()
        ]
        return ForeseenRisks(
            [found[number] for number in sorted(found)],
            {members[address]: internal.LentResponse.FromString(one).lent for address, one in lent.items()},
            unknown,
        )

    async def _ask_owner(self, chain: int, path: str, request: bytes) -> bytes:
        owner = self._view.owner(chain)
        if owner is None:
            raise Unavailable("no process has it open now")
        return await self._peers.call(owner.address, path, request, timeout_s=OWNER_S)

    async def scheduled(self, request: internal.ScheduledListRequest) -> list[internal.ScheduledOfChain]:
        """What waits for its time in every chain of a topic. Raises `Unavailable` where one does not answer."""

        def chains_of(answer: bytes) -> dict[int, internal.ScheduledOfChain]:
            return {one.chain: one for one in internal.ScheduledListResponse.FromString(answer).chains}

        answers, _ = await self._of_every_chain(request.topic, methods.CHAINS.ListScheduled, request, chains_of)
        return answers

    async def cancel_scheduled(self, request: internal.ScheduledCancelRequest) -> bool:
        """Whether a message that waited is cancelled. Raises `Unavailable` where nobody knows."""

        def chains_of(answer: bytes) -> dict[int, internal.ScheduledCancelResponse]:
            found = internal.ScheduledCancelResponse.FromString(answer)
            return dict.fromkeys(found.chains, found)

        path = methods.CHAINS.CancelScheduled
        answers, again = await self._of_every_chain(request.topic, path, request, chains_of)
        cancelled = any(one.cancelled for one in answers)
        if again and not cancelled and any(one.here for one in answers):
            raise Unavailable(
                "The message is no longer scheduled; it is not known whether it was cancelled or published."
            )
        return cancelled

    async def _of_every_chain(
        self, topic: int, path: str, request: Any, chains_of: Callable[[bytes], dict[int, Answer]]
    ) -> tuple[list[Answer], bool]:
        """What the owners of all chains registered for a topic answer; whether some had to be asked again, so that one
        of them may have done it twice. Raises `Unavailable`.
        """
        try:
            wanted = set(await registered_chains(self._view.store, topic))
        except StoreError as error:
            raise Unavailable(f"It is not known which chains have the topic: {error}. Try again.") from None
        end = self._now() + self._deadline_s
        found: dict[int, Answer] = {}
        again = False
        while missing := wanted - found.keys():
            owners = {chain: owner for chain in missing if (owner := self._view.owner(chain)) is not None}
            addresses = {owner.address for owner in owners.values()}
            answers, failed = await self._ask(addresses, path, request.SerializeToString(), end)
            for answer in answers.values():
                found |= chains_of(answer)
            if not wanted - found.keys():
                break
            again = again or bool(failed)
            if self._now() >= end:
                chain = min(wanted - found.keys())
                why = (
                    failed.get(owners[chain].address, "not open there") if chain in owners else "no process has it open"
                )
                raise Unavailable(
                    f"Chain {chain} may have messages of the topic and does not answer ({why}). Try again."
                )
            await asyncio.sleep(_PAUSE_S)
        return [found[chain] for chain in sorted(found) if chain in wanted], again

    async def acknowledge_seen(self, chain: int, request: internal.AcknowledgeSeenRequest) -> None:
        """Have who has a chain open acknowledge messages of a source. Raises `SyncpointError`."""
        await self._ask_owner(chain, methods.CHAINS.AcknowledgeSeen, request.SerializeToString())

    async def deliveries(self, subscription: int, revision: int = 0) -> tuple[Outstanding, list[str]]:
        """What is out with the subscribers of a subscription, at all subscribe forwarders; and who did not report.
        `revision`: of the catalog, that they must know when they report.
        """
        members = {one.address: one.name for one in self._view.with_role(SUBSCRIBE)}
        asked = internal.DescribeDeliveryRequest(subscription=subscription, revision=revision)
        request = asked.SerializeToString()
        answers, failed = await self._ask(members, methods.DELIVERIES.Describe, request, self._now() + self._deadline_s)
        answered = [internal.DescribeDeliveryResponse.FromString(one) for one in answers.values()]
        out = Outstanding(
            sum(one.messages for one in answered),
            sum(one.bytes for one in answered),
            sum(one.subscribers for one in answered),
            sum(one.leaving for one in answered),
        )
        return out, sorted(f"{members[address]} does not report ({why})" for address, why in failed.items())

    async def streams(self, subscription: int) -> tuple[list[internal.HeldStream], list[str]]:
        """What is outstanding on each stream of a subscription, at all subscribe forwarders; and who did not report."""
        members = {one.address: one.name for one in self._view.with_role(SUBSCRIBE)}
        request = internal.StreamsRequest(subscription=subscription).SerializeToString()
        end = self._now() + self._deadline_s
        answers, failed = await self._ask(members, methods.DELIVERIES.ListStreams, request, end)
        found = [one for answer in answers.values() for one in internal.StreamsResponse.FromString(answer).streams]
        return found, sorted(
            f"{members[address]} does not report what is outstanding ({why})" for address, why in failed.items()
        )

    async def consumption(self, subscription: int) -> tuple[internal.DescribeConsumptionResponse, list[str]]:
        """How a subscription is pushed, exported or forwarded, by the proxy that does it; and who did not report."""
        members = {one.address: one.name for one in self._view.with_role(PROXY)}
        request = internal.DescribeConsumptionRequest(subscription=subscription).SerializeToString()
        answers, failed = await self._ask(
            members, methods.CONSUMPTION.Describe, request, self._now() + self._deadline_s
        )
        answered = [internal.DescribeConsumptionResponse.FromString(one) for one in answers.values()]
        known = (one for one in answered if one.ByteSize())
        return next(known, internal.DescribeConsumptionResponse()), sorted(
            f"{members[address]} does not report ({why})" for address, why in failed.items()
        )

    async def statuses(self) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
        """What storage processes and publish forwarders say of themselves: name -> role -> values; and who did not."""
        members = {one.address: one.name for role in (STORAGE, PUBLISH) for one in self._view.with_role(role)}
        answers, failed = await self._ask(members, methods.PROCESS.GetStatus, b"", self._now() + self._deadline_s)
        answered = {
            members[address]: json.loads(internal.StatusResponse.FromString(answer).json)["roles"]
            for address, answer in answers.items()
        }
        return answered, sorted(f"{members[address]} does not report ({why})" for address, why in failed.items())

    async def _ask(
        self, addresses: Iterable[str], path: str, request: bytes, end: float
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        """The answers by address, and why others have none."""
        asked = sorted(addresses)
        timeout_s = max(_LEAST_S, end - self._now())
        results = await asyncio.gather(
            *(self._peers.call(address, path, request, timeout_s=timeout_s) for address in asked),
            return_exceptions=True,
        )
        answers: dict[str, bytes] = {}
        failed: dict[str, str] = {}
        for address, result in zip(asked, results, strict=True):
            if isinstance(result, bytes):
                answers[address] = result
            elif isinstance(result, SyncpointError):
                failed[address] = result.message
            else:
                raise result
        return answers, failed

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _risk_request(failures: Sequence[DomainFailure], member: str) -> bytes:
    asked = internal.AtRiskRequest()
    for one in failures:
        asked.failures.add(gone=one.gone, silent=one.silent, owner=member in one.processes)
    encoded: bytes = asked.SerializeToString()
    return encoded

"""The chain of a node, opened from its own disks, and the catalog that lies in its log.

Place: the `ChainsHere` of a node (`OwnChain`), and its `Upstream` (`OwnLog`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from syncpoint.base.model.cluster import ChainRecord
from syncpoint.broker.pipeline.exclusive_readers import NodeReaders
from syncpoint.broker.pipeline.home import SoloHomes
from syncpoint.broker.pipeline.mounting import ChainPipelines
from syncpoint.broker.publish.chain.chain import Chain, ChainContext
from syncpoint.broker.publish.facts.recovery import RecoveredState
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import CatalogChange, Setting
from syncpoint.cluster.control.failure_domains import FailureDomains, PlacedDisk, PlacedProcess
from syncpoint.cluster.control.log_commit import LogCommit
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.cluster.control.solo_ownership import SOLO_CHAIN, SOLO_EPOCH, NobodyAsks, OwnDisks
from syncpoint.front.api.node_admin import SERVER
from syncpoint.front.api.options_admin import LIMITS, take_limits
from syncpoint.node.metadata import align
from syncpoint.node.process_metrics import Measured
from syncpoint.node.publish_role import ChainsHere
from syncpoint.node.solo.solo_context import NODE, SoloContext
from syncpoint.node.subscribe_role import Fetching, SubscribeRole, Upstream
from syncpoint.node.upkeep import Upkeep
from syncpoint.node.uses import anchor_ns
from syncpoint.watch.metrics.risk_families import WatchedChain

ACK_KEY: Final = "ack-id-key"
"""The setting that holds the key; in the log, so that ack ids survive the loss of the data folder."""


async def _sealed(topic: int, epoch: int, chain: int) -> None:
    """There are no other chains."""


async def _next_log() -> int | None:
    """The disks say it."""
    return None


class OwnChain(ChainsHere):
    """`publish`: the forwarder of the chain; `store`: its storage; `control` changes the catalog; `ack_key`: what makes
    ack ids unforgeable.
    """

    chain: Chain
    ack_key: bytes

    def __init__(self, context: SoloContext) -> None:
        self._context = context

    async def context(self) -> ChainContext:
        context, identities = self._context, self._context.identities
        settings, environment = context.settings, context.environment
        folders = [str(folder) for folder in settings.disk_folders]
        return ChainContext(
            context.shared,
            NobodyAsks(context.shared),
            lambda topic: None,
            _sealed,
            lambda record, epoch: (environment.files, folders),
            _next_log,
            identities.universe,
            replace(environment, clock=context.trusted),
            context.limits,
            settings.storage,
            known_disks=OwnDisks(identities, settings.disk_folders),
            own_catalog=self._own_catalog,
            counter_floor=identities.log_counter_floor,
            mount=lambda chain: ChainPipelines(chain, SoloHomes(SOLO_CHAIN), environment.apart),
            tracer=context.tracer,
            recorder=context.recording.recorder,
        )

    async def start(self) -> None:
        """Recover. Raises `SyncpointError` with what to do when the disks cannot be used."""
        context, host = self._context, self.host
        durability = context.settings.durability
        await host.open(ChainRecord(SOLO_CHAIN, "", "", "", "", durability=durability), SOLO_EPOCH)
        self.chain = chain = host.chain(SOLO_CHAIN)
        self.publish, self.store = chain.forwarder, chain.store
        recorder, identities = context.recording.recorder, context.identities
        recorder.writer = f"{NODE}/{self.store.log_counter}"  # each life writes another log
        recorder.follow(context.shared)
        identities.adopt_universe(self.store.universe)
        identities.raise_log_counter_floor(self.store.log_counter)
        self.commits = LogCommit(chain.follower, context.mirror, context.shared.on_change)
        self.control = ControlPlane(self.commits, context.trusted, context.random)
        assert isinstance(chain.mounted, ChainPipelines)
        self.pipelines = chain.mounted
        key = self.control.catalog.setting(ACK_KEY)
        if key is None:
            key = context.random.token(32)
            await self.control.commit([CatalogChange.put(Setting(ACK_KEY, key))])
        self.ack_key = key

    def _own_catalog(self, memory: RecoveredState) -> Catalog:
        context = self._context
        context.trusted.known(anchor_ns(memory))
        stored_limits = memory.catalog.setting(LIMITS)
        if stored_limits is not None:
            take_limits(context.limits, stored_limits)
        align(context.mirror, memory)
        context.shared.catalog = memory.catalog
        return memory.catalog

    def measure(self, found: Measured) -> None:
        found.watched = _watched


class OwnLog(Upstream):
    """Deliver from that chain, and do what the clock asks for."""

    def __init__(self, context: SoloContext, log: OwnChain) -> None:
        self._context, self._log = context, log

    async def fetching(self) -> Fetching:
        return Fetching(self._log.publish.server, self._log.ack_key)

    def serve(self, role: SubscribeRole) -> None:
        context, log = self._context, self._log
        log.commits.act_by = role.forwarder.act_by
        log.pipelines.reader.exclusive = NodeReaders(log.publish, role.forwarder, log.control.commit)
        self.upkeep = Upkeep(
            log.chain.upkeep, log.host.rounds, role.forwarder, log.control, context.mirror, context.clock
        )

    async def on_joined(self) -> None:
        """Delete what short lives have left before anybody is served."""
        self.upkeep.start()
        await self.upkeep.catch_up()

    async def stop(self) -> None:
        """Note what was used."""
        await self.upkeep.stop()


def _watched(chain: Chain) -> WatchedChain:
    disks = [str(one.path) for one in chain.store.status().disks]
    domains = FailureDomains([PlacedDisk(one, one) for one in disks], [PlacedProcess(SERVER)])
    return WatchedChain(chain.forwarder, disks, domains, SERVER)

"""Looking at a cluster from any machine: who should run, who is a member, what each says of itself.

Place: used by `syncpoint cluster status` and `restart`; `inspect` puts the answers together. The metadata say who is a
member and who owns what; while they do not answer, a proxy does. The file says who else should be there. Only where
`cluster up` started processes does the folder know their ids, too: nothing else is taken from it.
Promise: it takes seconds, not minutes: every process is asked at the same time, and none for long. It changes nothing.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncpoint.base.model.errors import NotFound, SyncpointError
from syncpoint.catalog.metadata.contract import StoreError
from syncpoint.catalog.metadata.layout import SETTINGS
from syncpoint.catalog.metadata.view import ClusterView
from syncpoint.cluster.control.peer_channels import PeerChannels
from syncpoint.front.api.cluster_admin import chain_messages, member_messages
from syncpoint.node.cluster.cluster_environment import ClusterEnvironment
from syncpoint.node.cluster.settings import ClusterSettings, load
from syncpoint.node.cluster.tls import operator_tls
from syncpoint.programs.clusters.inspect import Answers, Found, assemble
from syncpoint.programs.clusters.local import SETTINGS_FILE, LocalCluster, ProcessState
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import admin, internal
from syncpoint.wire.transport.network import split_address

ASK_S = 2.0
METADATA_S = 4.0


@dataclass(slots=True)
class Cluster:
    """A cluster as somebody outside knows it. `local`: the folder of `cluster up`, where its processes were started."""

    settings: ClusterSettings
    local: LocalCluster | None = None
    shown_as: str = field(default="")  # how it was named, for messages

    @staticmethod
    def of_file(path: Path) -> Cluster:
        """By its file. Raises `NotFound`, `InvalidArgument`, `OSError`."""
        try:
            settings = load(path)
        except FileNotFoundError:
            made = f"; `syncpoint cluster up --dir {path.parent}` makes one" if path.name == SETTINGS_FILE else ""
            raise NotFound(f"{path}{made}") from None
        local = LocalCluster(path.parent) if path.name == SETTINGS_FILE and (path.parent / "pids").exists() else None
        return Cluster(settings, local, str(path))

    @staticmethod
    def of_metadata(addresses: tuple[str, ...], user: str = "", password_file: Path | None = None) -> Cluster:
        """By its etcd alone: who should be there besides its members is not known then."""
        return Cluster(ClusterSettings("", addresses, {}, {}, (), user, password_file), None, ", ".join(addresses))

    def describe(self) -> Found:
        """The whole of it as plain values: `processes`, `chains`, `problems`."""
        return asyncio.run(self.look())

    async def look(self) -> Found:
        return (await self.examine())[0]

    async def examine(self) -> tuple[Found, dict[str, Found | None]]:
        """Describe the cluster, and return each process's own status, None if it did not answer."""
        environment = ClusterEnvironment.of(operator_tls(self.settings) if self.settings.processes else None)
        peers = PeerChannels(environment.network)
        try:
            etcd = asyncio.gather(*(_listens(address) for address in self.settings.etcd))
            listed, why = await _from_metadata(self.settings, environment)
            if listed is None:
                proxies = [one.listen for one in self.settings.processes.values() if "proxy" in one.roles]
                listed = await _from_proxies(peers, [one for one in proxies if not one.endswith(":0")])
            members = {member.name: member for member in listed[0]} if listed is not None else {}
            states = self._states(members)
            addresses = [self._called_at(state, members) for state in states]
            asked = await asyncio.gather(
                *(_status(peers, state.name, address) for state, address in zip(states, addresses, strict=True))
            )
            reports = {state.name: answer for state, answer in zip(states, asked, strict=True)}
            answers = {name: None if one is None else one["roles"] for name, one in reports.items()}
            stores = self._etcd_states(await etcd)
        finally:
            await peers.close()
        found = assemble(
            Answers(stores, states, self._regions(members), answers, listed, why, tuple(self.settings.classes))
        )
        return found, reports

    def _states(self, members: dict[str, Any]) -> list[ProcessState]:
        """Who should be there: by the file, and by the metadata."""
        found = []
        for name, one in self.settings.processes.items():
            known = self.local.state(name) if self.local is not None and self.local.started(name) else None
            found.append(known or ProcessState(name, one.roles, None, "", one.public or one.listen))
        for name, member in members.items():
            if name not in self.settings.processes:
                found.append(ProcessState(name, tuple(member.roles), None, "", member.address))
        return found

    def _regions(self, members: dict[str, Any]) -> dict[str, str]:
        regions = {name: one.region for name, one in self.settings.processes.items()}
        return regions | {name: member.region for name, member in members.items()}

    def _called_at(self, state: ProcessState, members: dict[str, Any]) -> str:
        """Where a process can be asked; empty when nobody knows. The file's word holds for one that is no member."""
        if state.state in ("down", "paused"):
            member = members.get(state.name)
            return "" if member is None or state.state == "paused" else str(member.address)
        if state.name in members:
            return str(members[state.name].address)
        if state.state and self.local is not None:
            return self.local.called_at(state.name)
        known = self.settings.processes[state.name]
        return "" if known.listen.endswith(":0") or known.roles == ("storage",) else known.listen

    def _etcd_states(self, listening: list[bool]) -> list[ProcessState]:
        found = []
        for number, (address, there) in enumerate(zip(self.settings.etcd, listening, strict=True), 1):
            name = f"etcd-{number}"
            local = self.local.state(name) if self.local is not None and self.local.started(name) else None
            found.append(local or ProcessState(name, ("etcd",), None, "running" if there else "down", address))
        return found


async def _listens(address: str) -> bool:
    try:
        host, port = split_address(address)
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), ASK_S)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _from_metadata(
    settings: ClusterSettings, environment: ClusterEnvironment
) -> tuple[tuple[list[Any], list[Any]] | None, str]:
    """Members and chains as they stand in the metadata; None, and why, when these do not answer."""

    async def read() -> tuple[tuple[list[Any], list[Any]] | None, str]:
        store = await environment.metadata(settings)
        try:
            if await store.get(SETTINGS) is None:
                return ([], []), "the metadata know of no cluster: none of its processes has ever started"
            view = ClusterView(store)
            await view.start()
            try:
                return (member_messages(view), chain_messages(view)), ""
            finally:
                await view.close()
        finally:
            await store.close()

    try:
        return await asyncio.wait_for(read(), METADATA_S)
    except TimeoutError:
        return None, f"the metadata do not answer within {METADATA_S:g} s"
    except (StoreError, SyncpointError, OSError) as error:
        return None, f"the metadata store does not answer: {error}"


async def _from_proxies(peers: PeerChannels, proxies: list[str]) -> tuple[list[Any], list[Any]] | None:
    """Members and chains as the first proxy that answers remembers them."""
    for address in proxies:
        try:
            members = await peers.call(address, methods.ADMIN.ListMembers, b"", timeout_s=ASK_S)
            chains = await peers.call(address, methods.ADMIN.ListChains, b"", timeout_s=ASK_S)
        except SyncpointError:
            continue
        return (
            list(admin.ListMembersResponse.FromString(members).members),
            list(admin.ListChainsResponse.FromString(chains).chains),
        )
    return None


async def _status(peers: PeerChannels, name: str, address: str) -> Found | None:
    """What a process reports about itself; None if it does not answer, or another one answers there."""
    if not address:
        return None
    try:
        answer = await peers.call(address, methods.PROCESS.GetStatus, b"", timeout_s=ASK_S)
        found: Found = json.loads(internal.StatusResponse.FromString(answer).json)
        return found if found["name"] == name and "roles" in found else None
    except (SyncpointError, ValueError, KeyError):
        return None

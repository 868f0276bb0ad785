"""A federation that several programs share, driven: asks all clusters in rounds, and runs while it holds the term.

Place: between `syncpoint federation run` and the supervisor, where the file has `runtime.shared`. Which flows are
paused, and where publishers and consumers of a failover are, goes along: the newest state that any cluster has is put
into the state folder of the one that runs, and to the clusters that lack it.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from syncpoint.base.model.documents import check_document
from syncpoint.base.model.errors import Aborted, FailedPrecondition, InvalidArgument, SyncpointError, Unavailable
from syncpoint.base.model.names import project_of, short_id
from syncpoint.programs.federation import failover
from syncpoint.programs.federation.federation_term import FederationTerm, TermAct, TermAnswer
from syncpoint.programs.federation.servers import Servers
from syncpoint.programs.federation.spec import FederatedCluster, Federation
from syncpoint.programs.federation.state import StateFolder, SupervisorState
from syncpoint.wire.protobuf.messages import admin, well_known

TTL_S = 15.0
ROUND_S = 5.0
CALL_S = 3.0  # a silent cluster delays a round by no more
LOOK_S = 0.2
PUTS_MAX = 5  # tries to change the state while others change it

log = logging.getLogger(__name__)

State = dict[str, Any]
"""`paused`: names of flows; `failover`: by task, what `failover.FailoverPlaces` has."""
_NAMES = {"type": "string", "pattern": "^[A-Za-z0-9_~+%-][A-Za-z0-9._~+%-]*$", "maxLength": 600}  # names of files, too
_PLACES = {"task": _NAMES, "stage": {"enum": list(failover.FailoverStage)}, "changed_at": {"type": "number"}}
_PLACES |= {"publishers": {"type": "string"}, "consumers": {"type": "string"}}
_STATE = {
    "type": "object",
    "properties": {
        "paused": {"type": "array", "items": _NAMES},
        "failover": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "properties": _PLACES,
                "required": list(_PLACES),
                "additionalProperties": False,
            },
        },
    },
}


@dataclass(frozen=True, slots=True)
class SharedLook:
    """What the clusters keep: by name of those that answered; of the others why not."""

    answers: Mapping[str, admin.SharedFederation]
    silent: Mapping[str, str]

    @property
    def newest(self) -> tuple[int, str]:
        """The newest state."""
        return max(((one.version, one.state) for one in self.answers.values()), default=(0, ""))


class SharedFederations:
    """The record of one federation at all clusters of its file."""

    def __init__(self, federation: Federation) -> None:
        self.name = federation.runtime.shared
        self._project, self._id = project_of(self.name), short_id(self.name)
        self._clusters: Iterable[FederatedCluster] = tuple(federation.clusters.values())

    def look(self) -> SharedLook:
        """Ask all clusters at once."""
        return self._all("GetFederation", self._request(admin.GetFederationRequest))

    def hold(self, holder: str, term: int, ttl_s: float) -> SharedLook:
        """Ask all to let somebody hold it; 0 seconds give it back."""
        fields = {"holder": holder, "term": term, "ttl": well_known.Duration(seconds=int(ttl_s))}
        return self._all("HoldFederation", self._request(admin.HoldFederationRequest, **fields))

    def put(self, version: int, state: str) -> SharedLook:
        """Have all keep this state, unless they have a newer one."""
        fields = {"version": version, "state": state}
        return self._all("PutFederationState", self._request(admin.PutFederationStateRequest, **fields))

    def change(self, change: Callable[[State], None]) -> None:
        """Change the state at every cluster that answers; the others get it from who runs. Raises `Unavailable`,
        `Aborted`.
        """
        for _ in range(PUTS_MAX):
            look = self.look()
            if not look.answers:
                raise Unavailable(f"no cluster answers: {'; '.join(look.silent.values())}")
            version, text = look.newest
            state = read_state(text)
            change(state)
            wanted = version + 1, _text(state)
            kept = self.put(*wanted)
            if kept.answers and all((one.version, one.state) == wanted for one in kept.answers.values()):
                return
        raise Aborted(f"others keep changing {self.name}; try again")

    def _request(self, kind: Any, **fields: Any) -> Any:
        return kind(project=self._project, federation=self._id, **fields)

    def _all(self, method: str, request: Any) -> SharedLook:
        answers: dict[str, admin.SharedFederation] = {}
        silent: dict[str, str] = {}

        def ask(cluster: FederatedCluster) -> None:
            try:
                with Servers(patience_s=1.0, call_s=CALL_S) as servers:
                    answers[cluster.name] = servers.call(cluster, f"Admin.{method}", request)
            except SyncpointError as error:
                silent[cluster.name] = f"{cluster.name}: {error.message}"

        with ThreadPoolExecutor(8, "syncpoint-shared") as pool:
            list(pool.map(ask, self._clusters))
        return SharedLook(answers, silent)


class SharedRun:
    """One program's part in it: `run` calls `work` whenever this program is the one that runs, and ends it when it is
    no longer.
    """

    def __init__(self, records: SharedFederations, state: StateFolder, file: Path, stopping: threading.Event) -> None:
        self._records, self._state, self._stopping = records, state, stopping
        self._standby = SupervisorState(os.getpid(), str(file), time.time(), standby=True)
        # Containers at two sites may have one host name, and are process 1 of it.
        self.term = FederationTerm(f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}")
        self._logged = ""

    def run(self, work: Callable[[threading.Event], None]) -> None:
        """Until `stopping` is set. `work` is given an event that is set when it is to end."""
        try:
            while not self._stopping.is_set():
                self._round()
                if self.term.running:
                    self._work(work)
                elif self.term.act is TermAct.LOOK:
                    self._state.say(self._standby)
                    self._stopping.wait(ROUND_S)
        finally:
            if self.term.running:
                self._records.hold(self.term.name, self.term.term, 0)

    def _work(self, work: Callable[[threading.Event], None]) -> None:
        """Work, and renew the term beside it."""
        to_end, over = threading.Event(), threading.Event()

        def renew() -> None:
            try:
                while self.term.running and self._rests(over):
                    self._round()
            finally:
                to_end.set()

        thread = threading.Thread(target=renew, name="syncpoint-term", daemon=True)
        thread.start()
        try:
            work(to_end)
        finally:
            over.set()
            thread.join()

    def _rests(self, over: threading.Event) -> bool:
        """Wait for the next round; whether there is to be one."""
        return all(not (self._stopping.wait(LOOK_S) or over.is_set()) for _ in range(round(ROUND_S / LOOK_S)))

    def _round(self) -> None:
        term = self.term
        held = term.act is TermAct.HOLD
        look = self._records.hold(term.name, term.term, TTL_S) if held else self._records.look()
        term.answered({name: _answer_of(one) for name, one in look.answers.items()})
        self._say(look)
        if term.running and look.answers:
            self._bring(look)

    def _bring(self, look: SharedLook) -> None:
        """Put the newest state into the folder, and to clusters with an older one. The folder has the first."""
        version, text = look.newest
        try:
            if version:
                take(self._state, read_state(text))
            else:
                version, text = 1, _text(state_of(self._state))
        except FailedPrecondition as error:
            log.error("%s", error.message)
            return
        if any((one.version, one.state) != (version, text) for one in look.answers.values()):
            self._records.put(version, text)

    def _say(self, look: SharedLook) -> None:
        if self.term.running:
            state = f"{self.term.name} runs {self._records.name} in term {self.term.term}"
        elif self.term.act is TermAct.HOLD:
            return  # asked next
        elif look.answers:
            state = f"{self.term.name} stands by: {self.term.holder or 'nobody'} runs {self._records.name}"
        else:
            state = f"{self.term.name} stands by: no cluster answers ({'; '.join(look.silent.values())})"
        if state != self._logged:
            self._logged = state
            log.info("%s", state)


def share(federation: Federation, change: Callable[[State], None]) -> None:
    """Change the state that several programs share, if they do. Raises `Unavailable`, `Aborted`."""
    if federation.runtime.shared:
        SharedFederations(federation).change(change)


def pause(federation: Federation, flow: str) -> None:
    """Let a flow copy nothing until it is resumed, whichever program runs the federation."""
    share(federation, lambda state: state.update(paused=sorted({*state.get("paused", ()), flow})))
    StateFolder(federation.runtime.state).pause(flow)


def resume(federation: Federation, flow: str) -> bool:
    """Let a flow go on; whether it was paused."""
    was_paused = flow in paused(federation)
    share(federation, lambda state: state.update(paused=sorted({*state.get("paused", ())} - {flow})))
    StateFolder(federation.runtime.state).resume(flow)
    return was_paused


def paused(federation: Federation) -> frozenset[str]:
    """The flows that are paused, as this machine and the clusters have it."""
    found = StateFolder(federation.runtime.state).paused()
    if federation.runtime.shared:
        found |= frozenset(read_state(SharedFederations(federation).look().newest[1]).get("paused", ()))
    return found


def bring(federation: Federation) -> None:
    """Make the state folder of this machine say what was decided on any other. Raises `Unavailable`."""
    look = SharedFederations(federation).look()
    if not look.answers:
        raise Unavailable(f"no cluster answers: {'; '.join(look.silent.values())}")
    if look.newest[0]:
        take(StateFolder(federation.runtime.state), read_state(look.newest[1]))


def read_state(text: str) -> State:
    """A state that a cluster keeps; empty where there is none. Raises `FailedPrecondition` for what is none."""
    try:
        state: State = json.loads(text or "{}")
        check_document(state, _STATE, "the shared state")
    except (ValueError, InvalidArgument) as error:
        raise FailedPrecondition(f"a cluster keeps a state that cannot be read: {error}") from None
    return state


def take(folder: StateFolder, state: State) -> None:
    """Make a state folder say what was decided, wherever that was."""
    paused = frozenset(state.get("paused", ()))
    for flow in paused - folder.paused():
        folder.pause(flow)
    for flow in folder.paused() - paused:
        folder.resume(flow)
    for task, places in state.get("failover", {}).items():
        found = failover.FailoverPlaces(**places)
        if failover.load_places(folder.path, task) != found:
            failover.save(folder.path, found)


def state_of(folder: StateFolder) -> State:
    """What was decided, by a state folder."""
    places = (failover.load_places(folder.path, task) for task in failover.tasks(folder.path))
    return {"paused": sorted(folder.paused()), "failover": {one.task: asdict(one) for one in places if one is not None}}


def _text(state: State) -> str:
    return json.dumps(state, sort_keys=True)


def _answer_of(one: admin.SharedFederation) -> TermAnswer:
    return TermAnswer(one.holder, one.term, one.left.ToNanoseconds() / 1e9)

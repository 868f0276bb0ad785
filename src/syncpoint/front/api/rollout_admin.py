"""The newest rollout of a cluster, for operators: how far it is, and word for its controller to take it back.

Place: a part of syncpoint.admin.v1 in clusters, mounted by `cluster_admin`. What is shown is what the controller has
written into the metadata (docs/operations/rollouts.md); `rollout` is a room above, and drives it.
Promise: nothing is decided here. An abort is refused where no controller would heed it, with what to do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from syncpoint.base.model.errors import FailedPrecondition, NotFound
from syncpoint.catalog.metadata.contract import Put, unchanged
from syncpoint.catalog.metadata.layout import ROLLOUT_ABORT, ROLLOUT_CONTROLLER, ROLLOUT_STATE
from syncpoint.catalog.metadata.store_client import SharedStore, answered
from syncpoint.cluster.control.plane import ControlPlane
from syncpoint.front.api.options_admin import Handlers, admin_table
from syncpoint.wire.protobuf.messages import admin
from syncpoint.wire.transport.calls import Methods

UNDER_WAY = ("running", "rolling back")
_DURATIONS = {"watched": "watched_s", "watch": "watch_s"}
_TIMES = {"begin_time": "begun", "look_time": "looked", "end_time": "ended"}


class RolloutAdmin:
    """These methods on messages; `methods()` serves them on bytes."""

    def __init__(self, control: ControlPlane, store: SharedStore) -> None:
        self._control, self._store = control, store

    def methods(self) -> Methods:
        """The method table."""
        table: Handlers = {"GetRollout": self.get_rollout, "AbortRollout": self.abort_rollout}
        return admin_table(self._control, table)

    async def get_rollout(self, request: admin.GetRolloutRequest) -> admin.Rollout:
        """GetRollout."""
        found = await answered(self._store.get(ROLLOUT_STATE), "The metadata store does not answer")
        if found is None:
            raise NotFound("rollout", "No rollout has begun yet. Start one with `syncpoint rollout start FILE`.")
        return _message(json.loads(found.value), await self._text(ROLLOUT_CONTROLLER), await self._text(ROLLOUT_ABORT))

    async def abort_rollout(self, request: admin.AbortRolloutRequest) -> admin.Rollout:
        """AbortRollout."""
        now = await self.get_rollout(admin.GetRolloutRequest())
        if now.state not in UNDER_WAY:
            raise FailedPrecondition(
                f"Rollout {now.name} is {now.state} and cannot be aborted. To go back, roll out the earlier version."
            )
        found = await answered(self._store.get(ROLLOUT_CONTROLLER), "The metadata store does not answer")
        if found is None:
            raise FailedPrecondition(
                f"No process drives rollout {now.name} now. Run `syncpoint rollout abort FILE` where its files are."
            )
        word = (request.by or "somebody by syncpoint.admin.v1") + (f": {request.reason}" if request.reason else "")
        put = Put(ROLLOUT_ABORT, word.encode())
        done = await answered(self._store.txn([unchanged(ROLLOUT_CONTROLLER, found.revision)], [put]))
        if not done.ok:
            raise FailedPrecondition(
                f"The controller of rollout {now.name} ended just now. Read the rollout's state, then abort again."
            )
        return await self.get_rollout(admin.GetRolloutRequest())

    async def _text(self, key: str) -> str:
        found = await answered(self._store.get(key), "The metadata store does not answer")
        return "" if found is None else found.value.decode()


def _message(state: Mapping[str, Any], controller: str, aborted_by: str) -> admin.Rollout:
    """Convert the stored state of a rollout, written by a controller of this or a neighboring version."""
    restarting = state.get("restarting")
    under_way = state["state"] in UNDER_WAY
    made = admin.Rollout(
        name=state["name"],
        version=state["version"],
        commit=state["commit"],
        state=state["state"],
        step=state.get("step", ""),
        steps=state.get("steps", ()),
        deployed=state.get("deployed", False),
        restarting="" if restarting is None else f"{restarting['environment']}/{restarting['process']}",
        waits_for=state.get("waits_for", ""),
        reason=state.get("reason", ""),
        shares=state.get("shares", {}),
        figures=state.get("figures", {}),
        problems=[f"{name}: {text}" for name, texts in state.get("problems", {}).items() for text in texts],
        controller=controller,
        aborted_by=aborted_by if under_way else "",
    )
    for field, key in _DURATIONS.items():
        getattr(made, field).FromMilliseconds(int(state.get(key, 0.0) * 1000))
    for field, key in _TIMES.items():
        if state.get(key):
            getattr(made, field).FromMilliseconds(int(state[key] * 1000))
    if restarting is not None:
        made.restart_time.FromMilliseconds(int(restarting["since"] * 1000))
    for at_s, text in state.get("history", ()):
        made.events.add(text=text).time.FromMilliseconds(int(at_s * 1000))
    return made

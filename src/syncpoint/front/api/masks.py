"""Update masks: which fields of a resource a request may change, and changing them.

Place: used by every Update method.
Promise: paths are snake_case as in protobuf, nested ones are allowed; a field named by the mask and absent in the
request is cleared. Every refusal is INVALID_ARGUMENT and names the path.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from google.protobuf.message import Message

from syncpoint.front.api.validate import refused
from syncpoint.wire.protobuf.messages import admin, pubsub

Update = (
    pubsub.UpdateTopicRequest
    | pubsub.UpdateSubscriptionRequest
    | pubsub.UpdateSnapshotRequest
    | admin.UpdateTenantRequest
)


PATHS_MAX = 1000  # every field of a resource several times; more would only take the time of others


def checked_paths(request: Update, resource: Message, mutable: Collection[str]) -> list[str]:
    """The paths of a request's mask. `resource`: a message of the kind to change; `mutable`: its fields that may be.

    Raises `InvalidArgument` for a missing mask, an unknown path, and one that must not change.
    """
    request_name, kind = request.DESCRIPTOR.name, resource.DESCRIPTOR.name
    paths = list(request.update_mask.paths)
    if not paths:
        raise refused(
            "update_mask",
            f"The update_mask in the {request_name} must be set, and must contain a non-empty paths list.",
        )
    if len(paths) > PATHS_MAX:
        raise refused(
            "update_mask", f"The update_mask in the {request_name} has {len(paths)} paths; the maximum is {PATHS_MAX}."
        )
    start = f"Invalid update_mask provided in the {request_name}:"
    for path in paths:
        if not _known(resource.DESCRIPTOR, path):
            raise refused(
                "update_mask",
                f"{start} '{path}' is not a known {kind} field. "
                "Note that field paths must be of the form 'push_config' rather than 'pushConfig'.",
            )
        if path.partition(".")[0] not in mutable:
            raise refused("update_mask", f"{start} the '{path}' field in the {kind} is not mutable.")
    return paths


def _known(descriptor: Any, path: str) -> bool:
    name, _, rest = path.partition(".")
    field = descriptor.fields_by_name.get(name)
    if field is None:
        return False
    if not rest:
        return True
    # Nothing can be named inside a list or a map.
    return field.message_type is not None and not field.is_repeated and _known(field.message_type, rest)


def merge(target: Message, source: Message, paths: Sequence[str]) -> None:
    """Give `target` the values that `source` has at `paths`."""
    for path in paths:
        _merge(target, source, path)


def _merge(target: Message, source: Message, path: str) -> None:
    name, _, rest = path.partition(".")
    field = target.DESCRIPTOR.fields_by_name[name]
    if rest:
        if source.HasField(name) or target.HasField(name):
            _merge(getattr(target, name), getattr(source, name), rest)
            if source.HasField(name):
                getattr(target, name).SetInParent()
        return
    target.ClearField(name)
    value = getattr(source, name)
    if field.is_repeated:
        getattr(target, name).MergeFrom(value)
    elif field.message_type is not None:
        if source.HasField(name):
            getattr(target, name).CopyFrom(value)
    elif not field.has_presence or source.HasField(name):
        setattr(target, name, value)

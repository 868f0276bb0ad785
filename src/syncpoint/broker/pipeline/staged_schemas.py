"""Rows on their way into a topic with a schema: each names the revision it was encoded by, and must fit it.

Place: beside `staging`, once rows are messages and before they are stored. A publisher's messages are marked by the
server; here the program has marked them (the option `encode` of Spark's sink), and the server believes nothing of it.
Leaves to `catalog.schemas`: what fits.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import partial

from syncpoint.base.model.errors import FailedPrecondition, InvalidArgument
from syncpoint.base.model.names import project_of
from syncpoint.base.runtime.child_processes import Apart, worked
from syncpoint.catalog.metadata.catalog import Catalog
from syncpoint.catalog.metadata.records import Topic
from syncpoint.catalog.schemas import publishing
from syncpoint.catalog.schemas.errors import Mismatch
from syncpoint.catalog.schemas.validators import Encoding
from syncpoint.wire.protobuf.messages import pubsub

LENGTH = struct.Struct("<I")  # before each message of a piece


class StagedSchemas:
    """Checks frames against the schemas of a catalog; large ones `apart`."""

    def __init__(self, catalog: Catalog, apart: Apart) -> None:
        self._catalog, self._apart = catalog, apart

    async def check(self, topic: Topic, pieces: Sequence[bytes]) -> None:
        """Raises `InvalidArgument` for a row that names no revision or does not fit it, `NotFound`, `Unavailable`."""
        bounds = topic.schema
        assert bounds is not None
        revisions = publishing.revisions_of(self._catalog, bounds)
        size = sum(map(len, pieces))
        large = publishing.is_large(size, revisions.values(), bounds.encoding)
        work = partial(check_rows, pieces, bounds.name, revisions, bounds.encoding)
        await worked(self._apart, project_of(topic.name), work, large=large)


def sealed(topic: Topic) -> FailedPrecondition:
    """For a frame whose data a proxy has sealed."""
    return FailedPrecondition(
        f"{topic.name} has a schema, and its data is sealed before pipelines can check it. Publish with a client,"
        " or remove the schema."
    )


def changed(topic: Topic) -> FailedPrecondition:
    """For rows that were checked by settings that the topic has no more."""
    return FailedPrecondition(
        f"The schema or the transforms of {topic.name} were changed since rows of this epoch were staged. Nothing of it"
        " is stored. Write it again."
    )


def check_rows(pieces: Sequence[bytes], name: str, revisions: Mapping[str, bytes], encoding: int) -> None:
    """Raise `InvalidArgument` for the first row that does not fit the revision it names."""
    row = 0
    for piece in pieces:
        at = 0
        while at < len(piece):
            (size,) = LENGTH.unpack_from(piece, at)
            at += LENGTH.size + size
            message = pubsub.PubsubMessage.FromString(piece[at - size : at])
            if problem := _problem(message, name, revisions, encoding):
                raise InvalidArgument(f"rows[{row}]", problem)
            row += 1


def _problem(message: pubsub.PubsubMessage, name: str, revisions: Mapping[str, bytes], encoding: int) -> str:
    marks = message.attributes
    revision = marks.get(publishing.REVISION, "")
    if marks.get(publishing.NAME, "") != name or not revision:
        return (
            f"must name a revision of {name}, the topic's schema, in the attributes {publishing.NAME} and"
            f" {publishing.REVISION}. In Spark the option encode does so"
        )
    if revision not in revisions:
        return f"names the revision {revision}, which the topic does not allow"
    if marks.get(publishing.ENCODING, "") != Encoding(encoding).name:
        return f"must be encoded as {Encoding(encoding).name}, as the topic's schema settings say"
    try:
        publishing.check_fits(revisions[revision], message.data, encoding)
    except Mismatch as error:
        return f"does not match revision {revision} of {name}: {str(error)[: publishing.PROBLEM_CHARS_MAX]}"
    return ""

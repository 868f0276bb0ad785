"""Which schema a reader or a writer goes by, asked of the server.

Place: on the driver, when a reader or a writer is made; `revision_of` also in tasks, for revisions that messages name.
Promise: a stream keeps the columns it began with, whatever revisions come while it runs. A revision never changes, so
each process asks for it once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType

from pyspark_pubsub.errors import NOT_FOUND, CallError, OptionError, SchemaError
from pyspark_pubsub.options import Options, ServerAccess
from pyspark_pubsub.rpc import BlockingChannel
from pyspark_pubsub.suggestions import suggesting
from pyspark_pubsub.typed_values import PROTOCOL_BUFFER, SchemaRevision, readable, schema_of
from syncpoint.catalog.schemas.validators import Encoding
from syncpoint.wire.protobuf import methods
from syncpoint.wire.protobuf.messages import pubsub

if TYPE_CHECKING:
    from collections.abc import Callable

OF_TOPIC = "topic"
DELETED = "_deleted-schema_"
_KEPT_MAX = 256

_compiled: dict[str, bytes] = {}
_revisions: dict[tuple[ServerAccess, str], SchemaRevision | None] = {}


@dataclass(frozen=True)
class Typed:
    """By what data are decoded or encoded. `encoding` None: each message has it. `errors`: fail, null or drop."""

    revision: SchemaRevision
    encoding: Encoding
    errors: str = "fail"


def decoded_type(options: Options) -> DataType:
    """The type of the column `value`, for a reader that begins now. Raises as `decoding` does."""
    return readable(schema_of(decoding(options).revision).kind.type)


def decoding(options: Options, wanted: DataType | None = None) -> Typed:
    """What the option `decode` asks for. `wanted`: the type that the column `value` has already, from an earlier look.

    Raises OptionError, SchemaError, CallError.
    """
    given = Options.choice(options, "decodeErrors", ("fail", "null", "drop"))
    lookup = _Lookup(options, "decode")
    if wanted is None:
        return Typed(next(lookup.revisions()), lookup.encoding, given)
    for revision in lookup.revisions():
        if readable(schema_of(revision).kind.type) == wanted:
            return Typed(revision, lookup.encoding, given)
    raise SchemaError(
        f"No revision of {lookup.name} has the column value as {wanted.simpleString()}. Leave out `.schema(...)`, or"
        " load the frame again."
    )


def encoding(options: Options) -> Typed:
    """What the option `encode` asks for. Raises OptionError, SchemaError, CallError."""
    lookup = _Lookup(options, "encode")
    return Typed(next(lookup.revisions()), lookup.encoding)


def revision_of(access: ServerAccess, full_name: str) -> SchemaRevision | None:
    """A revision by its full name; None: it is deleted. Raises CallError."""
    key = access, full_name
    if key not in _revisions:
        request = pubsub.GetSchemaRequest(name=full_name, view=pubsub.SchemaView.FULL)
        try:
            answer = BlockingChannel(access).call(methods.SCHEMAS.GetSchema, request)
        except CallError as error:
            if error.code != NOT_FOUND:
                raise
            found = None
        else:
            found = _revision(pubsub.Schema.FromString(answer))
        while len(_revisions) >= _KEPT_MAX:
            del _revisions[next(iter(_revisions))]
        _revisions[key] = found
    return _revisions[key]


class _Lookup:
    """The schema that an option names: `topic`, or a schema, perhaps with @REVISION."""

    def __init__(self, options: Options, option: str) -> None:
        self._channel = BlockingChannel(options.access)
        given: str = options[option]
        settings = None
        if given == OF_TOPIC or not options["schemaEncoding"]:
            settings = self._settings(options, option)
        if given == OF_TOPIC:
            assert settings is not None
            if not settings.schema:
                raise OptionError(
                    f"{self._topic} has no schema for {option}=topic. Name one: {option}=projects/P/schemas/S, or"
                    " attach one to the topic (`syncpoint topics update --schema`)."
                )
            if settings.schema == DELETED:
                raise OptionError(f"The schema of {self._topic} is deleted. Name another one with the option {option}.")
            self.name, self._pinned = settings.schema, settings.last_revision_id
        else:
            name, _, self._pinned = given.partition("@")
            self.name = options.qualified(name, "schemas")
            if settings is not None and settings.schema == self.name:
                self._pinned = self._pinned or settings.last_revision_id
        self.encoding = self._encoding(options, settings)

    def revisions(self) -> Iterator[SchemaRevision]:
        """The newest that may be used first. Raises CallError."""
        with suggesting(self._channel, self.name):
            if self._pinned:
                yield _revision(self._get(f"{self.name}@{self._pinned}"))
                return
            yield _revision(self._get(self.name))
            request = pubsub.ListSchemaRevisionsRequest(name=self.name, view=pubsub.SchemaView.FULL)
            while True:
                answer = self._channel.call(methods.SCHEMAS.ListSchemaRevisions, request)
                page = pubsub.ListSchemaRevisionsResponse.FromString(answer)
                yield from map(_revision, page.schemas)
                request.page_token = page.next_page_token
                if not request.page_token:
                    return

    def _get(self, name: str) -> Any:
        request = pubsub.GetSchemaRequest(name=name, view=pubsub.SchemaView.FULL)
        return pubsub.Schema.FromString(self._channel.call(methods.SCHEMAS.GetSchema, request))

    def _settings(self, options: Options, option: str) -> Any:
        self._topic = options["topic"]
        if options["subscription"]:
            with suggesting(self._channel, options["subscription"]):
                request = pubsub.GetSubscriptionRequest(subscription=options["subscription"])
                answer = self._channel.call(methods.SUBSCRIBER.GetSubscription, request)
            self._topic = pubsub.Subscription.FromString(answer).topic
        if not self._topic:
            raise OptionError(
                f"{option}={options[option]} needs the option topic"
                + ("." if options[option] == OF_TOPIC else ", or schemaEncoding=json or binary.")
            )
        with suggesting(self._channel, self._topic):
            answer = self._channel.call(methods.PUBLISHER.GetTopic, pubsub.GetTopicRequest(topic=self._topic))
        return pubsub.Topic.FromString(answer).schema_settings

    def _encoding(self, options: Options, settings: Any) -> Encoding:
        given = Options.choice(options, "schemaEncoding", ("", "json", "binary"))
        if given:
            return Encoding[given.upper()]
        if settings is not None and settings.encoding:
            return Encoding(settings.encoding)
        raise OptionError(
            f"It is not known how the data of {self._topic} are encoded by {self.name}: set the option"
            " schemaEncoding=json or binary."
        )


def _revision(schema: Any) -> SchemaRevision:
    """A revision as the service describes it. Raises SchemaError."""
    name = schema.name.partition("@")[0]
    if schema.type != PROTOCOL_BUFFER:
        return SchemaRevision(name, schema.revision_id, schema.type, schema.definition.encode())
    if schema.HasField("compiled_proto_schema"):
        given = schema.compiled_proto_schema
        return SchemaRevision(name, schema.revision_id, schema.type, given.compiled_bytes, given.root_message)
    return SchemaRevision(name, schema.revision_id, schema.type, _compile(schema.definition))


def _compile(text: str) -> bytes:
    if text not in _compiled:
        from syncpoint.catalog.schemas.compiler import compile_proto
        from syncpoint.catalog.schemas.errors import BadDefinition

        compiler: Callable[[str], bytes] = compile_proto
        try:
            compiled = compiler(text)
        except BadDefinition as error:
            raise SchemaError(f"The schema cannot be compiled: {error}.") from None
        while len(_compiled) >= _KEPT_MAX:
            del _compiled[next(iter(_compiled))]
        _compiled[text] = compiled
    return _compiled[text]

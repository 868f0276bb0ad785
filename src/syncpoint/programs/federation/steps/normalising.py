"""Normalisation: messages of several formats become one, and may be encrypted anew for another audience on the way.

Place: a step, in Spark's Python workers. Promise: a payload that is decrypted here is encrypted again, if the task
requires so, before it leaves the worker: no plaintext comes to Spark's JVM, and so to none of its files. Keys are read
where they are used and are part of no plan. What is refused goes on as it came, still encrypted, and its reason shows
no value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, ClassVar

from syncpoint.base.model.limits import MESSAGE_ATTRIBUTES_MAX
from syncpoint.programs.federation.steps.payload_formats import (
    MEDIA,
    BadPayload,
    InputFormat,
    RecordSchema,
    decoder,
    encoder,
)
from syncpoint.programs.federation.steps.payload_keys import ALGORITHM, KEY, KeyringPlace, NotOpened
from syncpoint.programs.federation.steps.step import DETAIL, REASON
from syncpoint.programs.federation.steps.validating import SchemaText

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

UNREADABLE, NOT_DECRYPTED = "NormalisationFailed", "DecryptionFailed"
CONTENT_TYPE = "content-type"


@dataclass(frozen=True, slots=True)
class Normal:
    """What is to be done, as it travels to the workers. `by`: the attribute that names a message's input; "": the only
    one.
    """

    schema: str
    inputs: tuple[tuple[str, InputFormat], ...]
    output: str
    by: str = ""
    output_definition: SchemaText | None = None
    decrypt: KeyringPlace | None = None
    encrypt: KeyringPlace | None = None
    encrypt_key: str = ""


@dataclass(frozen=True, slots=True)
class Normalise:
    """The step."""

    normal: Normal
    topics: tuple[str, ...] = ()
    look: ClassVar = None

    @property
    def summary(self) -> str:
        normal = self.normal
        summary = "decrypted, " if normal.decrypt else ""
        summary += f"{', '.join(dict.fromkeys(one.kind for _, one in normal.inputs))} to {normal.output}"
        return summary + (f", encrypted with {normal.encrypt_key}" if normal.encrypt else "")

    @property
    def repeatable(self) -> bool:
        """What is encrypted is something else each time."""
        return self.normal.encrypt is None

    def apply(self, frame: DataFrame) -> DataFrame:
        """Write the data anew, or refuse them."""
        from pyspark.sql.functions import coalesce, col, when

        from syncpoint.programs.federation.steps.arrow_functions import rewritten

        columns = frame.columns
        frame = frame.withColumn("normal", rewritten(partial(rewriter, self.normal), col("data"), col("attributes")))
        fresh = col(REASON).isNull()
        return frame.withColumns(
            {
                "data": when(fresh, col("normal.data")).otherwise(col("data")),
                "attributes": when(fresh, col("normal.attributes")).otherwise(col("attributes")),
                REASON: coalesce(col(REASON), col("normal.reason")),
                DETAIL: when(fresh, col("normal.detail")).otherwise(col(DETAIL)),
            }
        ).select(*columns)


Rewritten = tuple[bytes, dict[str, str], str | None, str | None]


@cache
def rewriter(normal: Normal) -> Callable[[bytes, dict[str, str]], Rewritten]:
    """A function from data and attributes to new ones and, for what is refused, the old ones with reason and detail."""
    schema = RecordSchema(normal.schema)
    decode = {name: (decoder(one), dict(one.fields)) for name, one in normal.inputs}
    only = normal.inputs[0][0]
    encode = encoder(normal.output, normal.schema, normal.output_definition)

    def rewrite(data: bytes, attributes: dict[str, str]) -> Rewritten:
        try:
            plain = normal.decrypt.load().decrypt(data, attributes) if normal.decrypt else data
            name = attributes.get(normal.by, "") if normal.by else only
            if name not in decode:
                raise BadPayload(f"the attribute {normal.by} does not name one of {', '.join(decode)}")
            read, places = decode[name]
            made = encode(schema.record(read(plain), places))
        except NotOpened as error:
            return data, attributes, NOT_DECRYPTED, str(error)
        except BadPayload as error:
            return data, attributes, UNREADABLE, str(error)
        left = {key: value for key, value in attributes.items() if key not in (KEY, ALGORITHM, normal.by)}
        left[CONTENT_TYPE] = MEDIA[normal.output]
        if normal.encrypt:
            made, named = normal.encrypt.load().encrypt(normal.encrypt_key, made)
            left |= named
        if len(left) > MESSAGE_ATTRIBUTES_MAX:
            return data, attributes, UNREADABLE, "too many attributes to add more"
        return made, left, None, None

    return rewrite

"""Enrichment: fields are added to data from reference tables.

Place: a step; a broadcast join of Spark with each table, so the order of rows stays. Promise: a message is written
once, whatever the table holds. One whose key is in no table goes on as it is, or is refused. Fields are put
after existing ones, whose bytes stay as they are, unless one of the same name is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from syncpoint.base.kernel.json_fields import PATHS_MAX
from syncpoint.programs.federation.steps.json_objects import (
    EXTENSIBLE,
    NO_OBJECT,
    OBJECT,
    extended,
    literal,
    members,
    replaced,
    with_extensible,
    written,
)
from syncpoint.programs.federation.steps.references import READING, Reference, tables_of
from syncpoint.programs.federation.steps.step import JSON_END, JSON_FIELDS, REASON, JsonLook, refuse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REFUSED = "EnrichmentFailed"
_COLUMNS = {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string", "minLength": 1}}
KEYS: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["table", "format", "take"],
        "anyOf": [{"required": ["match"]}, {"required": ["match_attributes"]}],
        "additionalProperties": False,
        "properties": {
            "table": {"type": "string", "description": "Folder or file of the table."},
            "format": {"enum": sorted(READING)},
            "match": {**_COLUMNS, "description": "Match: table column to field of the data."},
            "match_attributes": {**_COLUMNS, "description": "Match: table column to attribute."},
            "take": {**_COLUMNS, "description": "Added: table column to new field."},
            "types": {
                "type": "object",
                "additionalProperties": {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_ ]*([(][0-9, ]+[)])?$"},
                "description": "Types: table column to Spark SQL type. CSV columns are text by default.",
            },
            "refresh": {"$ref": "#/$defs/duration"},
            "missing": {"enum": ["keep", "refuse"]},
        },
    },
}


@dataclass(frozen=True, slots=True)
class Lookup:
    """One table: fields and attributes by the columns they are compared with, new fields by the columns they come
    from.
    """

    reference: Reference
    fields: Mapping[str, str]
    attributes: Mapping[str, str]
    take: Mapping[str, str]
    refuse_missing: bool


@dataclass(frozen=True, slots=True)
class Enrich:
    """The step."""

    lookups: tuple[Lookup, ...]
    topics: tuple[str, ...] = ()
    repeatable: ClassVar = True

    @property
    def look(self) -> JsonLook | None:
        """The fields that are compared, and those that are added; None where an option cannot name them."""
        fields = dict.fromkeys(path for lookup in self.lookups for path in lookup.fields.values())
        taken = [name for lookup in self.lookups for name in lookup.take.values()]
        if len(fields) > PATHS_MAX or any("," in name or name.strip() != name for name in (*fields, *taken)):
            return None
        return JsonLook(tuple(fields), tuple(taken))

    @property
    def summary(self) -> str:
        return "; ".join(f"add {', '.join(one.take.values())} from {one.reference.path.name}" for one in self.lookups)

    def apply(self, frame: DataFrame) -> DataFrame:
        """Join with every table, and write the fields into the data."""
        from pyspark.sql.functions import broadcast, col, expr, lit, when

        columns = frame.columns
        taken = [name for lookup in self.lookups for name in lookup.take.values()]
        compared = {
            f"lookup{number}_c{i}": path
            for number, lookup in enumerate(self.lookups)
            for i, path in enumerate(lookup.fields.values())
        }
        frame = with_extensible(frame, compared, taken)
        frame = refuse(frame, REFUSED, when(~col(EXTENSIBLE) & col(OBJECT).isNull(), lit(NO_OBJECT)))
        tables = tables_of(frame.sparkSession)
        added: dict[str, str] = {}
        for number, lookup in enumerate(self.lookups):
            values = {name: f"CAST(v{i} AS VARIANT)" for i, name in enumerate(lookup.take.values())}
            table = tables.frame(lookup.reference).withColumns({"found": lit(True), "text": expr(members(values))})
            table = table.toDF(*(f"lookup{number}_{name}" for name in table.columns))
            keys = [*(f"lookup{number}_c{i}" for i in range(len(lookup.fields))),
                    *(f"attributes[{literal(name)}]" for name in lookup.attributes.values())]  # fmt: skip
            on = [expr(f"lookup{number}_k{i} = {key}") for i, key in enumerate(keys)]
            frame = frame.join(broadcast(table), on, "left")
            if lookup.refuse_missing:
                reason = f"{lookup.reference.path.name} has no row for the key of this message"
                frame = refuse(frame, REFUSED, when(col(f"lookup{number}_found").isNull(), lit(reason)))
            for i, name in enumerate(lookup.take.values()):
                added[name] = f"CAST(lookup{number}_v{i} AS VARIANT)"
        more = " || ".join(f"coalesce(lookup{number}_text, '')" for number in range(len(self.lookups)))
        enriched = (
            when(col(REASON).isNotNull() | expr(f"{more} = ''"), col("data"))
            .when(col(EXTENSIBLE), expr(extended(more)))
            .otherwise(written(expr(replaced(added))))
        )
        left = (name for name in columns if name not in (JSON_END, JSON_FIELDS))  # they were of the data before
        return frame.withColumn("data", enriched).select(*left)

"""Documents that people write, held against a JSON schema: what is wrong first, where, and what would be right.

Place: under the rooms that read a file of YAML or JSON. A schema shows valid values by `examples` beside each
`pattern`, and by the names of its `properties`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from syncpoint.base.model.errors import InvalidArgument

if TYPE_CHECKING:
    import jsonschema

Found = TypeVar("Found")
_OTHER_WAYS = {"patternProperties", "anyOf", "oneOf", "if"}
_UNKNOWN_KEY = ("additionalProperties", "unevaluatedProperties")


@cache
def schema_of(package: str) -> dict[str, Any]:
    """The schema of the file that a package reads: `schema.json` in its folder."""
    found: dict[str, Any] = json.loads(resources.files(package).joinpath("schema.json").read_text(encoding="utf-8"))
    return found


def load_document(parse: Callable[[Any, Path], Found], path: Path) -> Found:
    """Read a file of YAML; `parse` is given its content, and where its relative paths start. Raises `InvalidArgument`
    naming the key, `OSError` when it cannot be read.
    """
    from syncpoint.base.model.yaml_text import load_yaml_file  # not at a start without such files

    return parse(load_yaml_file(path), path.resolve().parent)


def check_document(content: Any, schema: Mapping[str, Any], place: str, within: str = "{place}.{path}") -> None:
    """Raise `InvalidArgument` for content that a schema does not allow. Its field is `place`, for a mistake of the
    outermost object, or what `within` makes of the place and the path of the mistake.
    """
    import jsonschema  # slow to import, and most commands read no such document

    found = jsonschema.Draft202012Validator(schema).iter_errors(content)
    errors = [leaf for error in found for leaf in _leaves(error)]
    if errors:
        # The deepest error is the most specific: a wrong value also makes its key an unknown one, further up. Of
        # several alternatives, those of another type were not meant. A key that is missing may be there under a wrong
        # name.
        def weight(error: jsonschema.ValidationError) -> tuple[int, bool, bool]:
            return len(error.absolute_path), error.validator != "type", bool(_unknown(error, schema)[0])

        worst = max(errors, key=weight)
        path = ".".join(str(part) for part in worst.absolute_path)
        raise InvalidArgument(within.format(place=place, path=path) if path else place, _said(worst, schema))


def _leaves(error: jsonschema.ValidationError) -> Iterator[jsonschema.ValidationError]:
    if not error.context:
        yield error
    for inner in error.context or ():
        yield from _leaves(inner)


def _said(error: jsonschema.ValidationError, whole: Mapping[str, Any]) -> str:
    examples = error.schema.get("examples") if isinstance(error.schema, Mapping) else None
    if error.validator == "pattern" and examples:
        return f"{error.instance!r} does not match; it is written like {', '.join(map(str, examples))}"
    unknown, known = _unknown(error, whole)
    if unknown:
        import difflib

        close = difflib.get_close_matches(str(unknown[0]), known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
        return f"{unknown[0]!r} was unexpected; {hint}"
    return error.message


def _unknown(error: jsonschema.ValidationError, whole: Mapping[str, Any]) -> tuple[list[Any], list[str]]:
    """Keys that are not allowed, and those that are; neither where the schema names them in another way."""
    if error.validator not in _UNKNOWN_KEY or error.validator_value is not False:
        return [], []
    known = _known(error.schema, whole)
    if not known:
        return [], []
    return [name for name in error.instance if name not in known], sorted(known)  # type: ignore[union-attr]  # an object


def _known(part: Any, whole: Mapping[str, Any]) -> set[str] | None:
    """Names of the properties that a part of a schema allows; None where more than names decides."""
    if not isinstance(part, Mapping) or part.keys() & _OTHER_WAYS:
        return None
    inner = list(part.get("allOf", ()))
    if "$ref" in part:
        inner.append(whole.get("$defs", {}).get(part["$ref"].removeprefix("#/$defs/")))
    found = set(part.get("properties", ()))
    for one in inner:
        names = _known(one, whole)
        if names is None:
            return None
        found |= names
    return found

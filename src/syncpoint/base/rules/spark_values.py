"""Values of SQL rules in Spark SQL: conversions, texts, lookups and LIKE of `sql_values`, as texts of expressions.

Place: under `spark_rules`; texts in, texts out, without Spark.
Promise: an expression gives what the function of the same name in `sql_values` gives, also with ANSI mode on; it never
raises, calls no Python, and does not depend on the session's time zone. Times and spans are microseconds, as numbers.
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from functools import cache

from syncpoint.base.rules.sql_values import INT_MIN, NUMBER_MAX, Value
from syncpoint.base.rules.system_properties import folded

NULL_BOOLEAN, NULL_TEXT = "CAST(NULL AS BOOLEAN)", "CAST(NULL AS STRING)"
TEXT_MAP = "MAP<STRING,STRING>"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
TIME_MIN = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
TIME_MAX = (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC) - _EPOCH) // _MICROSECOND
SPAN_MIN, SPAN_MAX = timedelta.min // _MICROSECOND, timedelta.max // _MICROSECOND
_DAY, _HOUR, _MINUTE, _SECOND = 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000
_INTEGER = r"\A[+-]?[0-9]+\z"
_DOUBLE = r"\A[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\z"
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,9})?)?"
_TIME = rf"\A(?!0000)[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(?:[T ]{_CLOCK}(?:Z|[+-][0-9]{{2}}:[0-9]{{2}})?)?\z"
_SPAN = r"\A(-)?(?:([0-9]{1,8})\.)?([01]?[0-9]|2[0-3]):([0-5]?[0-9])(?::([0-5]?[0-9])(?:\.([0-9]{1,7}))?)?\z"
_PLAIN = re.compile(r"[ -&(-~]*")  # printable, of ASCII, and no quote


# -- literals ----------------------------------------------------------------------------------------------------------


def text_literal(text: str) -> str:
    """A text; in bytes where Spark's parser would see more in it than letters."""
    if _PLAIN.fullmatch(text) and "$" not in text:
        return f"r'{text}'"
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def micros_of(value: datetime | timedelta) -> int:
    """A time since 1970, or a span, in microseconds."""
    return (value - _EPOCH if isinstance(value, datetime) else value) // _MICROSECOND


def number_literal(value: float) -> str:
    """An integer of 64 bits, a larger one as a decimal, or a double."""
    if not isinstance(value, int):
        return f"CAST('{value!r}' AS DOUBLE)"
    if value == INT_MIN:
        return f"CAST('{value}' AS BIGINT)"
    if not INT_MIN <= value <= -(INT_MIN + 1):
        return f"CAST('{value}' AS DECIMAL(20,0))"
    return f"{value}L" if value >= 0 else f"({value}L)"


def literal(value: Value) -> str:
    """A value that is not NULL."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime | timedelta):
        return number_literal(micros_of(value))
    if isinstance(value, str):
        return text_literal(value)
    assert value is not None
    return number_literal(value)


_OFFSET, _AFTER_POINT = text_literal(r"([+-][0-9]{2}:[0-9]{2})?\z"), text_literal(r"\.([0-9]+)")

# -- texts read as something -------------------------------------------------------------------------------------------


def integer_of(text: str) -> str:
    """The integer that a text is; NULL."""
    return (
        f"CASE WHEN length({text}) <= {NUMBER_MAX} AND {text} RLIKE {text_literal(_INTEGER)}"
        f" THEN try_cast({text} AS BIGINT) END"
    )


def double_of(text: str) -> str:
    """The double that a text is which is no integer; NULL."""
    return (
        f"CASE WHEN length({text}) <= {NUMBER_MAX} AND {text} RLIKE {text_literal(_DOUBLE)}"
        f" AND NOT {text} RLIKE {text_literal(_INTEGER)} THEN {finite(f'try_cast({text} AS DOUBLE)')} END"
    )


def boolean_of(text: str) -> str:
    """The boolean that a text is; NULL."""
    return f"CASE lower({text}) WHEN 'true' THEN true WHEN 'false' THEN false END"


def time_of(text: str) -> str:
    """The time that a text is, by its form; NULL. It may be beyond all times: see `within`."""
    offset = f"regexp_extract({text}, {_OFFSET}, 0)"
    minutes = f"({_part(offset, 2, 2)} * 60 + {_part(offset, 5, 2)})"
    sign = f"CASE WHEN left({offset}, 1) = '-' THEN -1L ELSE 1L END"
    fraction = f"regexp_extract({text}, {_AFTER_POINT}, 1)"
    whole = (
        f"unix_date(try_cast(left({text}, 10) AS DATE)) * {_DAY}L + {_part(text, 12, 2)} * {_HOUR}L"
        f" + {_part(text, 15, 2)} * {_MINUTE}L + {_part(text, 18, 2)} * {_SECOND}L + {_fraction(fraction)}"
        f" - {sign} * {minutes} * {_MINUTE}L"
    )
    return f"CASE WHEN {text} RLIKE {text_literal(_TIME)} AND {minutes} < 1440 THEN {whole} END"


def span_of(text: str) -> str:
    """The span that a text is; NULL."""
    parts = [f"regexp_extract({text}, {text_literal(_SPAN)}, {group})" for group in range(1, 7)]
    sizes = zip(parts[1:5], (_DAY, _HOUR, _MINUTE, _SECOND), strict=True)
    whole = " + ".join(f"coalesce(try_cast(nullif({part}, '') AS BIGINT), 0L) * {size}L" for part, size in sizes)
    return (
        f"CASE WHEN {text} RLIKE {text_literal(_SPAN)} THEN"
        f" CASE WHEN {parts[0]} = '-' THEN -1L ELSE 1L END * ({whole} + {_fraction(parts[5])}) END"
    )


def _part(text: str, at: int, size: int) -> str:
    return f"coalesce(try_cast(nullif(substring({text}, {at}, {size}), '') AS BIGINT), 0L)"


def _fraction(digits: str) -> str:
    return f"try_cast(rpad(left({digits}, 6), 6, '0') AS BIGINT)"


def within(number: str, least: int, most: int) -> str:
    """A number between two bounds; NULL beyond."""
    return f"CASE WHEN {number} BETWEEN {number_literal(least)} AND {number_literal(most)} THEN {number} END"


def finite(double: str) -> str:
    """A double that is a number; NULL for the others."""
    return f"nullif(nullif(nullif({double}, double('Infinity')), double('-Infinity')), double('NaN'))"


# -- something as a text -----------------------------------------------------------------------------------------------


def text_of(kind: str, value: str) -> str:
    """The invariant text of a value of a kind."""
    match kind:
        case "text":
            return value
        case "time":
            return _time_text(value)
        case "span":
            return _span_text(value)
        case "double":
            return double_text(value)
    return f"CAST({value} AS STRING)"


def _time_text(micros: str) -> str:
    rest = f"pmod({micros}, {_DAY}L)"
    day = f"date_from_unix_date(CAST(({micros} - {rest}) div {_DAY} AS INT))"
    return f"CAST({day} AS STRING) || 'T' || {_clock(rest)} || 'Z'"


def _span_text(micros: str) -> str:
    size = f"abs(CAST({micros} AS DECIMAL(20,0)))"
    days = f"({size} div {_DAY})"
    rest = f"CAST({size} % {_DAY} AS BIGINT)"
    return (
        f"CASE WHEN {micros} < 0 THEN '-' ELSE '' END || CASE WHEN {days} > 0 THEN CAST({days} AS STRING) || '.'"
        f" ELSE '' END || {_clock(rest)}"
    )


def _clock(micros: str) -> str:
    """hours:minutes:seconds, and a fraction where there is one."""
    parts = (f"({micros} div {_HOUR})", f"({micros} div {_MINUTE} % 60)", f"({micros} div {_SECOND} % 60)")
    clock = " || ':' || ".join(f"lpad(CAST({part} AS STRING), 2, '0')" for part in parts)
    fraction = f"{micros} % {_SECOND}"
    return f"{clock} || CASE WHEN {fraction} > 0 THEN '.' || lpad(CAST({fraction} AS STRING), 6, '0') ELSE '' END"


def double_text(double: str) -> str:
    """The shortest text that is read as this double, and of several the nearest, laid out as Python does it. Java's own
    has a digit too many at times, or is not the nearest; what Spark has for its JSON knows better (Schubfach), but for
    the least of all, which are one digit for Python and two for Java.
    """
    written = f"reflect('com.fasterxml.jackson.core.io.schubfach.DoubleToDecimal', 'toString', {double})"
    least = f"format_string('%.0E', {double})"
    written = (
        f"CASE WHEN abs({double}) < 1e-321D AND try_cast({least} AS DOUBLE) = {double} THEN {least} ELSE {written} END"
    )
    parts = f"split(trim(LEADING '-' FROM {written}) || 'E0', 'E')"  # ddd.ddd, and an exponent that may be missing
    return (
        f"CASE WHEN {double} IS NULL THEN NULL WHEN {double} = 0 THEN CAST({double} AS STRING) ELSE"
        f" CASE WHEN {double} < 0 THEN '-' ELSE '' END || {_applied(parts, _SPLIT, _TRIMMED, _LAID_OUT)} END"
    )


def _applied(value: str, *steps: str) -> str:
    """What comes of a value by expressions one after the other, each of x: computed once, however often it has x."""
    for step in steps:
        value = f"element_at(transform(array({value}), x -> {step}), 1)"
    return value


_SPLIT = "named_struct('d', replace(x[0], '.', ''), 'e', CAST(x[1] AS INT) + length(substring_index(x[0], '.', 1)) - 1)"
_TRIMMED = "named_struct('d', trim(BOTH '0' FROM x.d), 'e', x.e - (length(x.d) - length(trim(LEADING '0' FROM x.d))))"
_LAID_OUT = (
    "CASE WHEN x.e >= 16 OR x.e < -4 THEN left(x.d, 1) || CASE WHEN length(x.d) > 1 THEN '.' || substring(x.d, 2)"
    " ELSE '' END || 'e' || CASE WHEN x.e < 0 THEN '-' ELSE '+' END || lpad(CAST(abs(x.e) AS STRING),"
    " greatest(2, length(CAST(abs(x.e) AS STRING))), '0')"
    " WHEN x.e < 0 THEN '0.' || repeat('0', -x.e - 1) || x.d"
    " WHEN length(x.d) <= x.e + 1 THEN rpad(x.d, x.e + 1, '0') || '.0'"
    " ELSE left(x.d, x.e + 1) || '.' || substring(x.d, x.e + 2) END"
)
"""With an exponent from 1e16 on and below 1e-4."""


# -- attributes by name ------------------------------------------------------------------------------------------------


def spellings(name: str) -> str | None:
    """A regular expression for all names that are this one in some case; None: it has one spelling only."""
    found, several = [], False
    for letter in name:
        forms = [letter.lower(), letter.upper()] if letter.isascii() else _forms(folded(letter))
        forms = sorted(set(forms))
        several = several or len(forms) > 1
        found.append("[" + "".join(map(_escaped, forms)) + "]" if len(forms) > 1 else _escaped(forms[0]))
    return "".join(found) if several else None


def _forms(wanted: str) -> list[str]:
    return [wanted, *_by_folded().get(wanted, ())]


@cache
def _by_folded() -> dict[str, list[str]]:
    """Letters beyond ASCII that are another letter when names are compared, by that one."""
    found: dict[str, list[str]] = {}
    for code in range(0x80, sys.maxunicode + 1):
        low = folded(chr(code))
        if low != chr(code):
            found.setdefault(low, []).append(chr(code))
    return found


def _escaped(letter: str) -> str:
    return letter if letter.isalnum() or not letter.isascii() else f"\\x{ord(letter):02x}"


def attribute(attributes: str, name: str) -> str:
    """The attribute of this name, whatever its case: the one that is written so, or sorts first; NULL."""
    exact = f"try_element_at({attributes}, {text_literal(name)})"
    pattern = spellings(name)
    if pattern is None:
        return exact
    return (
        f"coalesce({exact}, CASE WHEN {_may_have(attributes, pattern)}"
        f" THEN try_element_at({attributes}, {_first_spelling(attributes, pattern)}) END)"
    )


def with_attribute(attributes: str, name: str, written: str) -> str:
    """The attributes with another value for a name, under the spelling it had; without it where the value is NULL."""
    pattern = spellings(name) or "".join(map(_escaped, name))
    plain = text_literal(name)
    kept = (
        f"CASE WHEN map_contains_key({attributes}, {plain}) THEN {plain}"
        f" ELSE coalesce({_first_spelling(attributes, pattern)}, {plain}) END"
    )
    rest = f"map_filter({attributes}, (k, v) -> NOT (k RLIKE {_whole(pattern)}))"
    none = f"CAST(map() AS {TEXT_MAP})"

    def added(to: str, key: str) -> str:
        return f"CASE WHEN {written} IS NULL THEN {to} ELSE map_concat({to}, map({key}, {written})) END"

    return (
        f"CASE WHEN {_may_have(attributes, pattern)} THEN {added(rest, kept)}"
        f" ELSE {added(f'coalesce({attributes}, {none})', plain)} END"
    )


def _may_have(attributes: str, pattern: str) -> str:
    """Cheaper than to look at each name; true for names with a zero byte in them, too."""
    names = f"array_join(map_keys({attributes}), CAST(X'00' AS STRING))"
    somewhere = text_literal(rf"(?:\A|\x00){pattern}(?:\z|\x00)")
    return f"{names} RLIKE {somewhere}"


def _first_spelling(attributes: str, pattern: str) -> str:
    return f"array_min(filter(map_keys({attributes}), k -> k RLIKE {_whole(pattern)}))"


def _whole(pattern: str) -> str:
    """A regular expression, as a literal, for nothing but what the pattern is for."""
    return text_literal(rf"(?s)\A{pattern}\z")


# -- LIKE --------------------------------------------------------------------------------------------------------------


def like(text: str, symbols: list[str]) -> str:
    """`text LIKE` a pattern, given as `pattern_symbols` does. Each part between `%` is found as early as possible and
    never again, so that no pattern takes more than text times pattern.
    """
    parts: list[list[str]] = [[]]
    for symbol in symbols:
        if symbol == "%":
            parts.append([])
        else:
            parts[-1].append(symbol)
    if len(parts) == 1:
        if "_" not in symbols:
            return f"{text} = {text_literal(_plain(symbols))}"
        return f"{text} RLIKE {_whole(_regex(symbols))}"
    inner = [part for part in parts[1:-1] if part]
    if not inner and "_" not in symbols:
        return _around(text, _plain(parts[0]), _plain(parts[-1]))
    if len(inner) == 1 and not parts[0] and not parts[-1] and "_" not in symbols:
        return f"contains({text}, {text_literal(_plain(inner[0]))})"
    middle = "".join(f"(?>.*?{_regex(part)})" for part in inner)
    return f"{text} RLIKE {_whole(f'{_regex(parts[0])}{middle}.*{_regex(parts[-1])}')}"


def _around(text: str, first: str, last: str) -> str:
    if not first and not last:
        return f"({text} IS NOT NULL OR {NULL_BOOLEAN})"
    begins, ends = f"startswith({text}, {text_literal(first)})", f"endswith({text}, {text_literal(last)})"
    if not last or not first:
        return begins if first else ends
    return f"({begins} AND {ends} AND length({text}) >= {len(first) + len(last)})"


def _plain(symbols: list[str]) -> str:
    return "".join(symbol[1:] for symbol in symbols)


def _regex(symbols: list[str]) -> str:
    return "".join("." if symbol == "_" else _escaped(symbol[1:]) for symbol in symbols)


def like_pattern_of(text: str, pattern: str) -> str:
    """`text LIKE` a pattern that only the message knows, without an escape character."""
    marks, escape = text_literal(r"([^A-Za-z0-9%_])"), text_literal(r"\\$1")
    regex = f"replace(replace(regexp_replace({pattern}, {marks}, {escape}), '%', '.*'), '_', '.')"
    begin, end = text_literal(r"(?s)\A"), text_literal(r"\z")
    return f"{text} RLIKE concat({begin}, {regex}, {end})"

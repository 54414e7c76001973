"""The error for columns that need an encoder to become features: one for all, with a FEATURES clause to paste."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from grouplearn import sqltext
from grouplearn.bind.clauses.number_texts import MISSING, SIGNS, WITH_COMMA, WITH_POINT, number_sql
from grouplearn.bind.sql.builtins import keywords
from grouplearn.bind.sql.checker import SqlChecker
from grouplearn.data.encoding import types
from grouplearn.data.encoding.registry import takers
from grouplearn.errors import BindError
from grouplearn.messages import Span
from grouplearn.parser.statements import Feature, Sql

#: A text column without an encoder is one-hot encoded up to this many distinct values.
AUTO_ONEHOT_LIMIT = 100
#: The hint where no column is left.
NONE_LEFT = "The label, the keys, the time of ORDER BY, the weight and what VALIDATE looks at are none. Name features one by one."
#: Rows from which a column's texts are judged, and the share of values that are numbers where the rest may be NULL.
LOOKED_AT, _MOSTLY = 100_000, 0.9
#: Most columns that are described; the clause has all.
_DESCRIBED = 20
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*", re.IGNORECASE)
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_STAR = "*"
#: Dates as people write them; of 03/04/2024 the first that reads nearly all texts is taken.
DATE_FORMATS = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y")
#: The category of words that are names everywhere.
_FREE = "unreserved"


@dataclass(frozen=True, slots=True)
class FeatureSuggestion:
    """A column or an expression that stands as a feature without an encoder.

    ``span`` is the span of its item. ``why`` it is no feature as it is, None if it is one; ``instead`` are items that
    could be, and ``others`` some that could be in place of them.
    """

    name: str
    sql: Sql
    type: str
    span: Span
    why: str | None = None
    instead: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def unfit(candidate: FeatureSuggestion, why: str) -> FeatureSuggestion:
    """Return a candidate of a type that no feature has, with what can be made of it."""
    sql = _written(candidate.sql)
    if types.is_untyped(candidate.type):
        cast = f"{_cast(sql)}::DOUBLE"
        return replace(
            candidate, why="is NULL in every row, and has no type", others=("leave it out", f"cast it: {cast}")
        )
    instead = _of_type(sql, candidate.type)
    return replace(candidate, why=why, instead=instead, others=() if instead else ("leave it out",))


def many_texts(candidate: FeatureSuggestion, distinct: int) -> FeatureSuggestion:
    """Return a candidate of more texts than are one-hot encoded without being asked."""
    why = f"has {distinct:,} distinct texts; without an encoder at most {AUTO_ONEHOT_LIMIT} are one-hot encoded"
    sql = _written(candidate.sql)
    return replace(candidate, why=why, instead=(f"hash({sql}, 64)",), others=(f"ordinal({sql})", f"onehot({sql})"))


def refusal(
    checker: SqlChecker,
    source: Sequence[str | Sql],
    features: Sequence[Feature],
    candidates: Sequence[FeatureSuggestion],
    alone: Exception | None = None,
) -> Exception:
    """Return the error for candidates of which some are no features as they are.

    ``alone`` is the error if it is only one.
    """
    known = _with_texts(checker, source, candidates)
    flawed = [each for each in known if each.why is not None]
    if alone is not None and len(flawed) == 1:
        return alone
    lines = [f'feature "{each.name}" {each.why}: {_remedy(each)}' for each in flawed[:_DESCRIBED]]
    if len(flawed) > 1:
        lines = [f"{len(flawed):,} columns cannot be features as they are", *lines]
    if len(flawed) > _DESCRIBED:
        lines.append("...")
    written = _clause(checker, features, known)
    hint = (
        f"Write FEATURES ({', '.join(written)})." if written else "Make features of them: FEATURES (epoch(day), ...)."
    )
    return BindError("\n".join(lines), text=checker.text, span=flawed[0].span, hint=hint)


def _remedy(candidate: FeatureSuggestion) -> str:
    ways = [*([_listed(candidate.instead, "and")] if candidate.instead else []), *candidate.others]
    return _listed(ways, "or")


def _listed(words: Sequence[str], conjunction: str) -> str:
    *first, last = words
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def _of_type(sql: str, type_name: str) -> tuple[str, ...]:
    """Return the items that can be made of an expression of this type, none where it has to be known better."""
    has_date = types.is_date_or_timestamp(type_name)
    if types.is_time(type_name) and not has_date:
        return (f"hour({sql})",)
    if type_name == "INTERVAL":
        return (f"epoch({sql})",)
    calls = [each.call.example for each in takers(types.column_of(type_name)) if each.call]
    if not calls:
        return ()
    # The first one is made for the type: it takes the parts of a date, the elements of a list; the last one of any type has as
    # many columns as the user gives.
    chosen = calls[0] if has_date or type_name.endswith("]") else calls[-1]
    return (chosen.replace("(x", f"({sql}", 1),)


def _clause(checker: SqlChecker, features: Sequence[Feature], candidates: Sequence[FeatureSuggestion]) -> list[str]:
    """Return the statement's FEATURES with other items in place of those that are none as they are."""
    written = []
    for feature in features:
        own = [each for each in candidates if each.span == feature.arguments[0].span]
        if feature.encoder or all(each.why is None for each in own):
            written.append(checker.text[feature.span.start : feature.span.end].strip())
        else:
            written += _items(feature.arguments[0].text.strip(), own)
    return written


def _items(text: str, candidates: Sequence[FeatureSuggestion]) -> list[str]:
    """Return what stands for an item some of whose columns cannot be features as they are."""
    flawed = [each for each in candidates if each.why is not None]
    if text == _STAR and len(candidates) - len(flawed) > _DESCRIBED:
        columns = ", ".join(_written(each.sql) for each in flawed)
        return [f"* EXCLUDE ({columns})", *(item for each in flawed for item in each.instead)]
    return [item for each in candidates for item in (each.instead if each.why is not None else [_written(each.sql)])]


def _written(sql: Sql) -> str:
    """Return an expression as its user would write it, a column without quotes where it needs none."""
    text = sql.text.strip()
    quoted = _QUOTED.fullmatch(text)
    return as_written(quoted[1].replace('""', '"')) if quoted else text


def as_written(name: str) -> str:
    """Return the name of a column as its user would write it, without quotes where it needs none."""
    plain = _PLAIN.fullmatch(name) and keywords().get(name.casefold(), _FREE) == _FREE
    return name if plain else sqltext.identifier(name)


TextKind = Literal[
    "numbers",
    "numbers as people write them",
    "numbers with points",
    "numbers with a decimal comma",
    "dates",
    "numbers and others",
    "texts",
]


class TextContents(NamedTuple):
    """What texts are: how many different ones, and whether those that stand for no missing value are numbers or dates."""

    distinct: int
    kind: TextKind
    #: How dates are written, empty as in ISO 8601.
    date_format: str = ""
    #: Their signs of money, percents and thousands that are neither point nor comma.
    signs: str = ""
    #: Whether some stand for a missing value.
    missing: bool = False

    def number_sql(self, sql: str) -> str:
        """Return SQL of the text of a number as SQL reads it."""
        if self.kind == "numbers with points":
            return f"replace({sql}, '.', '')"
        commas = self.kind == "numbers as people write them"
        decimal_comma = self.kind == "numbers with a decimal comma"
        return number_sql(sql, commas=commas, decimal_comma=decimal_comma, signs=self.signs)


def text_contents(checker: SqlChecker, source: Sequence[str | Sql], texts: Sequence[Sql]) -> list[TextContents]:
    """Return what the values of expressions are, as far as they are texts, by some of the rows."""
    columns: list[str | Sql] = []
    for number, each in enumerate(texts):
        columns += [", CAST((" if number else "CAST((", each, f"\n) AS VARCHAR) AS t{number}"]
    every = range(len(texts))
    missing = ", ".join(map(sqltext.string, MISSING))
    known = ", ".join(f"CASE WHEN lower(trim(t{i})) NOT IN ({missing}) THEN t{i} END AS k{i}" for i in every)
    counted = ", ".join(map(_counts_sql, every))
    some = f"FROM (SELECT *, {known} FROM (SELECT"
    found = checker.rows(f"SELECT {counted} {some}", *columns, *source, f"LIMIT {LOOKED_AT}))")[0]
    return [_contents(counts) for counts in found]


def _contents(counts: dict[str, Any]) -> TextContents:
    kind, date_format = _kind(counts)
    return TextContents(counts["distinct_texts"], kind, date_format, counts["signs"] or "", bool(counts["missing"]))


def _kind(counts: dict[str, Any]) -> tuple[TextKind, str]:
    """Return what texts are, and how they are written where they are dates."""
    texts = counts["texts"]
    if counts["coded"] or not texts:
        return "texts", ""
    if counts["dotted"] and counts["dotted"] + counts["short"] == texts:
        return "numbers with points", ""
    if counts["plain"] == texts:
        return "numbers", ""
    if counts["shown"] == texts:
        return "numbers as people write them", ""
    if counts["commas"] == texts:
        return "numbers with a decimal comma", ""
    if counts["times"] >= _MOSTLY * texts:
        return "dates", ""
    for number, written in enumerate(DATE_FORMATS):
        if counts[f"times{number}"] >= _MOSTLY * texts:
            return "dates", written
    return "numbers and others" if counts["plain"] >= _MOSTLY * texts else "texts", ""


def _with_texts(
    checker: SqlChecker, source: Sequence[str | Sql], candidates: Sequence[FeatureSuggestion]
) -> list[FeatureSuggestion]:
    """Return the candidates, those that are texts judged by their values: numbers, dates, or many texts."""
    texts = [each for each in candidates if types.kind(each.type) == "category"]
    if not texts:
        return list(candidates)
    try:
        found = text_contents(checker, source, [each.sql for each in texts])
    except BindError:  # an expression that raises: what is known of types is said all the same
        return list(candidates)
    judged = {id(each): _judged(each, contents) for each, contents in zip(texts, found, strict=True)}
    return [judged.get(id(each), each) for each in candidates]


def _counts_sql(number: int) -> str:
    text, name = f"t{number}", f"k{number}"
    signs = f"regexp_extract_all(trim({name}), {sqltext.string(SIGNS)})"
    counts = {
        "distinct_texts": f"count(DISTINCT {types.uncollated(text, 'VARCHAR')})",
        "missing": f"count({text}) - count({name})",
        "texts": f"count({name})",
        "plain": f"count(TRY_CAST({name} AS DOUBLE))",
        "shown": f"count(*) FILTER (regexp_full_match({name}, {sqltext.string(WITH_POINT)}))",
        "commas": f"count(*) FILTER (regexp_full_match({name}, {sqltext.string(WITH_COMMA)}))",
        "signs": f"array_to_string(list_sort(list_distinct(flatten(list({signs})))), '')",
        "dotted": f"count(*) FILTER (regexp_full_match({name}, '-?[1-9][0-9]{{0,2}}(\\.[0-9]{{3}})+'))",
        "short": f"count(*) FILTER (regexp_full_match({name}, '-?[0-9]{{1,3}}'))",
        "coded": f"count(*) FILTER (regexp_full_match({name}, '0[0-9]+'))",
        "times": f"count(TRY_CAST({name} AS TIMESTAMP))",
        **{f"times{number}": f"count(try_strptime({name}, '{each}'))" for number, each in enumerate(DATE_FORMATS)},
    }
    return "{" + ", ".join(f"'{key}': {sql}" for key, sql in counts.items()) + "}"


def _judged(candidate: FeatureSuggestion, contents: TextContents) -> FeatureSuggestion:
    if contents.distinct <= AUTO_ONEHOT_LIMIT and candidate.why is None:
        return candidate
    found = candidate if candidate.why is not None else many_texts(candidate, contents.distinct)
    sql = _written(candidate.sql)
    number = contents.number_sql(sql)
    shown = _cast(number) if number == sql else number
    number = f"TRY_CAST({number} AS DOUBLE)" if contents.missing else f"{shown}::DOUBLE"
    match contents.kind:
        case "numbers" | "numbers as people write them":
            return _as(found, "numbers as texts", (number,))
        case "numbers with points":
            return _as(found, "numbers with a point after each thousand", (number,))
        case "numbers with a decimal comma":
            return _as(found, "numbers with a decimal comma", (number,))
        case "dates":
            return _as(found, "dates as texts", _of_type(date_written(sql, contents), "DATE"))
        case "numbers and others":
            return _as(found, "numbers as texts, and others", (f"TRY_CAST({sql} AS DOUBLE)",))
        case "texts":
            return found


def date_written(sql: str, contents: TextContents) -> str:
    """Return SQL of the timestamp that a text is."""
    if contents.date_format:
        return f"try_strptime({sql}, {sqltext.string(contents.date_format)})"
    return f"TRY_CAST({sql} AS TIMESTAMP)" if contents.missing else f"{_cast(sql)}::TIMESTAMP"


def _as(candidate: FeatureSuggestion, what: str, instead: tuple[str, ...]) -> FeatureSuggestion:
    return replace(candidate, why=f"has {what}", instead=instead, others=())


def _cast(sql: str) -> str:
    """Return an expression before ``::``."""
    return sql if _PLAIN.fullmatch(sql) or _QUOTED.fullmatch(sql) else f"({sql})"

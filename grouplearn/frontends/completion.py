"""What may stand at a place in SQL: completion in the shell and in notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import duckdb

from grouplearn.bind.run.options import REFRESH_OPTIONS, RUN_OPTIONS, SETTINGS, WITH_OPTIONS
from grouplearn.data.encoding.registry import CALLS
from grouplearn.errors import Error
from grouplearn.exchange.exporting import FORMATS
from grouplearn.learners import registry
from grouplearn.learners.contract.config import Hyperparameter
from grouplearn.parser.lexer.tokens import Kind, Token, lex
from grouplearn.schedule.options import OneOf
from grouplearn.sqltext import written

_CLAUSES = (
    "USING", "PREDICT", "ORDER BY", "SERIES BY", "FEATURES", "FROM", "WHERE", "GROUP BY", "HAVING", "OVER", "VALIDATE",
    "REFIT", "OPTIMIZE", "KEEP", "ON MISSING GROUP", "ON NULL LABEL", "ON GROUP FAILURE", "WITHIN", "WITH",
)  # fmt: skip
#: Words of our statements that are none of DuckDB's.
OUR_WORDS = frozenset(
    "ASHA AUTO BEST EVALUATE FEATURES FOLDS GRID HYPERBAND KEEP LABEL LEARNER LEARNERS MODEL MODELS OPTIMIZE OPTIONS "  # noqa: SIM905
    "PREDICT RANDOM REFRESH ROLLING SAMPLE TARGET TRAIN VALIDATE".split()
)
#: What follows words of our statements.
_AFTER: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("SHOW",): ("MODELS", "LEARNERS", "RUNS", "FUNCTIONS OF"),
    ("TRAIN",): ("MODEL", "OR REPLACE MODEL"),
    ("REFRESH",): ("MODEL",),
    ("RETRY",): ("FAILED MODEL",),
    ("EVALUATE",): ("MODEL",),
    ("DESCRIBE",): ("MODEL", "LEARNER"),
    ("OVER",): ("GRID", "RANDOM", "HYPERBAND", "ASHA", "PBT", "TPE"),
    ("VALIDATE",): ("WHERE", "SAMPLE", "FOLDS", "ROLLING", "NONE"),
    ("KEEP",): ("ALL", "BEST"),
    ("MISSING", "GROUP"): ("PARENT", "NULL", "ERROR"),
    ("NULL", "LABEL"): ("SKIP", "ERROR"),
    ("GROUP", "FAILURE"): ("KEEP", "ERROR"),
    ("GROUP", "BY"): ("ROLLUP", "CUBE", "GROUPING SETS"),
    ("FORMAT",): tuple(FORMATS),
}
#: Words before the name of a model that there is, and of a learner.
_OF_MODELS = (("MODEL",), ("MODEL", "IF", "EXISTS"), ("FUNCTIONS", "OF"))
_NEW = frozenset({"TRAIN", "CREATE", "IMPORT"})
_OF_LEARNERS = (("USING",), ("LEARNER",))
#: The bracket that a word opens, and what stands there.
_OPTIONS, _PROCEDURES = ("WITH", "OPTIONS"), ("GRID", "RANDOM", "HYPERBAND", "ASHA", "PBT", "TPE")
_NAMES = (
    "WITH known AS (FROM system.main.duckdb_columns() WHERE NOT internal AND schema_name <> 'grouplearn')"
    " SELECT table_name FROM known UNION SELECT column_name FROM known"
    " UNION SELECT function_name FROM system.main.duckdb_functions() WHERE function_type = 'table_macro' AND NOT internal"
    " ORDER BY ALL ASC"
)
_KEYWORDS = "SELECT system.main.upper(keyword_name) FROM system.main.duckdb_keywords()"


def completions(before: str, connection: duckdb.DuckDBPyConnection | Any) -> tuple[str, list[str]]:
    """Return the beginning of the word at the end of ``before``, and the words that may stand there.

    Where a clause of ours says what must follow, these come alone, else after it keywords, tables, columns and functions.
    """
    tokens = _statement(before)
    if tokens and tokens[-1].kind in (Kind.BROKEN, Kind.STRING, Kind.NUMBER) and tokens[-1].end == len(before):
        return "", []
    begun = bool(tokens) and tokens[-1].is_identifier and tokens[-1].end == len(before)
    word, earlier = (tokens[-1].text, tokens[:-1]) if begun else ("", tokens)
    place = _Place(earlier, connection)
    found = place.expected()
    if found is None:
        keywords = place.keywords() if word else []
        found = [*place.clauses(), *place.names(_NAMES), *keywords] if word and earlier else keywords
    start = word.casefold()
    return word, [each for each in dict.fromkeys(found) if each.strip('"').casefold().startswith(start)]


def _statement(before: str) -> list[Token]:
    """Return the tokens of the statement at the end."""
    tokens = list(lex(before))
    ends = [place for place, token in enumerate(tokens) if token.is_symbol(";")]
    return tokens[ends[-1] + 1 :] if ends else tokens


class _Place:
    """A place after some tokens of a statement."""

    def __init__(self, tokens: Sequence[Token], connection: Any) -> None:
        self._tokens, self._connection = tokens, connection
        self._words = [token.word for token in tokens]
        self._open = self._bracket()

    def expected(self) -> list[str] | None:
        """Return what must stand here, None if that may be anything."""
        words = self._words
        if self._is_after(_OF_LEARNERS) or (self._clause() == "USING" and self._is_at(",")):
            return list(registry.names())
        if self._is_after(_OF_MODELS) and not _NEW & {*words[:3]}:
            return self.names("SELECT DISTINCT model_name FROM grouplearn.models ORDER BY ALL ASC")
        if words and words[-1] in ("SET", "RESET"):
            return [f"grouplearn_{name}" for name in SETTINGS] + self.names(
                "SELECT name FROM system.main.duckdb_settings() ORDER BY ALL ASC"
            )
        if words and words[-1] == "OPTIMIZE":
            return list(dict.fromkeys(self._metrics()))
        for after, follow in _AFTER.items():
            if tuple(words[-len(after) :]) == after:
                return [*follow, *(self.names(_NAMES) if after == ("GROUP", "BY") else ())]
        return None if self._open is None else self._inside(self._open)

    def clauses(self) -> list[str]:
        """Return the clauses of TRAIN that the statement lacks."""
        if self._open is not None or "MODEL" not in self._words[:4] or not {"TRAIN", "CREATE"} & {*self._words[:2]}:
            return []
        return [each for each in _CLAUSES if each.split()[0] not in self._words or each in ("GROUP BY", "ORDER BY")]

    def names(self, query: str) -> list[str]:
        """Return the only column of a query; nothing in an aborted transaction, or where a table is missing."""
        try:
            rows = self._connection.execute(query).fetchall()
        except (Error, duckdb.Error):
            return []
        return [written(name) for (name,) in rows]

    def keywords(self) -> list[str]:
        """Return the words of DuckDB's SQL and of ours."""
        try:
            rows = self._connection.execute(_KEYWORDS).fetchall()
        except (Error, duckdb.Error):
            rows = []
        return sorted({word for (word,) in rows} | OUR_WORDS)

    def _bracket(self) -> int | None:
        """Return the place of the bracket that is open here."""
        opened: list[int] = []
        for place, token in enumerate(self._tokens):
            if token.is_symbol("("):
                opened.append(place)
            elif token.is_symbol(")") and opened:
                opened.pop()
        return opened[-1] if opened else None

    def _inside(self, place: int) -> list[str] | None:
        """Return what may stand in a bracket of ours."""
        opener, at_name = self._words[place - 1] if place else "", self._is_at("(", ",")
        if opener == "FEATURES":
            return ["AUTO", *CALLS, *self.names(_NAMES)]
        if opener.casefold() in CALLS and "FEATURES" in self._words:
            return self.names(_NAMES)
        if opener == "IN" and place > 1:
            return self._values(self._tokens[place - 2].text)
        if opener in _PROCEDURES and "OVER" in self._words:
            return [each.name for each in self._hyperparameters()] if at_name else None
        if opener in _OPTIONS and self._words[:1] != ["WITH"]:
            if self._is_at("="):
                return self._values(self._tokens[-2].text)
            own = REFRESH_OPTIONS if self._words[0] == "REFRESH" else WITH_OPTIONS
            return [*(each.name for each in self._hyperparameters()), *own] if at_name else None
        return None

    def _is_after(self, ends: Iterable[tuple[str, ...]]) -> bool:
        return any(tuple(self._words[-len(end) :]) == end for end in ends)

    def _is_at(self, *symbols: str) -> bool:
        return bool(self._tokens) and self._tokens[-1].is_symbol(*symbols)

    def _clause(self) -> str:
        """Return the last word that begins a clause."""
        firsts = {each.split()[0] for each in _CLAUSES}
        return next((word for word in reversed(self._words) if word in firsts), "")

    def _learners(self) -> list[str]:
        """Return the learners that the statement names, all if it names none."""
        if "USING" not in self._words:
            return []
        rest = self._tokens[self._words.index("USING") + 1 :]
        named = []
        for token in rest:
            if registry.is_known(token.text.casefold()):
                named.append(token.text.casefold())
            elif not token.is_symbol(","):
                break
        return named

    def _hyperparameters(self) -> Iterator[Hyperparameter]:
        for name in self._learners():
            for way in registry.ways(registry.learner(name)):
                yield from way.declaration.hyperparameters

    def _metrics(self) -> Iterator[str]:
        for name in self._learners() or registry.names():
            for label in registry.learner(name).declaration.labels:
                yield from registry.family_of(name, label).names()

    def _values(self, name: str) -> list[str] | None:
        """Return the texts that a hyperparameter or an option may be, in quotes; None for numbers."""
        choices = [choice for each in self._hyperparameters() if each.name == name for choice in each.choices]
        check = RUN_OPTIONS[name].check if name in RUN_OPTIONS else None
        choices += check.allowed if isinstance(check, OneOf) else ()
        return [f"'{choice}'" for choice in dict.fromkeys(choices)] or None

"""The words that the grammar gives a meaning."""

RESERVED = frozenset(
    [
        "all",
        "analyse",
        "analyze",
        "and",
        "any",
        "array",
        "as",
        "asc",
        "asymmetric",
        "both",
        "case",
        "cast",
        "check",
        "collate",
        "column",
        "constraint",
        "create",
        "default",
        "deferrable",
        "desc",
        "describe",
        "distinct",
        "do",
        "else",
        "end",
        "except",
        "false",
        "fetch",
        "for",
        "foreign",
        "from",
        "group",
        "having",
        "in",
        "initially",
        "intersect",
        "into",
        "lambda",
        "lateral",
        "leading",
        "limit",
        "not",
        "null",
        "offset",
        "on",
        "only",
        "or",
        "order",
        "pivot",
        "pivot_longer",
        "pivot_wider",
        "placing",
        "primary",
        "qualify",
        "references",
        "returning",
        "select",
        "show",
        "some",
        "summarize",
        "symmetric",
        "table",
        "then",
        "to",
        "trailing",
        "true",
        "union",
        "unique",
        "unpivot",
        "using",
        "variadic",
        "when",
        "where",
        "window",
        "with",
    ]
)
"""DuckDB's reserved words (``duckdb_keywords()``): a name only inside double quotes."""

SOFT_CLAUSES = frozenset(
    {
        "PREDICT",
        "TARGET",
        "LABEL",
        "FEATURES",
        "OVER",
        "VALIDATE",
        "OPTIMIZE",
        "KEEP",
        "OPTIONS",
        "PARTITION",
        "SERIES",
        "WITHIN",
        "REFIT",
    }
)
"""Clause keywords that are not reserved, so they may also be names."""

CLAUSES = (
    "USING",
    "PREDICT",
    "TARGET",
    "LABEL",
    "ORDER BY",
    "SERIES BY",
    "FEATURES",
    "FROM",
    "WHERE",
    "GROUP BY",
    "PARTITION BY",
    "HAVING",
    "OVER",
    "VALIDATE",
    "REFIT",
    "OPTIMIZE",
    "KEEP",
    "ON MISSING GROUP",
    "ON NULL LABEL",
    "ON GROUP FAILURE",
    "WITH",
    "OPTIONS",
)
"""All clauses of TRAIN MODEL, for messages."""

FOREIGN_CLAUSES = frozenset(
    {"LIMIT", "OFFSET", "QUALIFY", "UNION", "EXCEPT", "INTERSECT", "WINDOW", "SELECT", "FETCH", "RETURNING"}
)
"""Reserved words that start a clause of DuckDB's queries but none of ours."""

INFIX = frozenset(
    {"AND", "OR", "IN", "IS", "LIKE", "ILIKE", "GLOB", "TO", "BETWEEN", "ESCAPE", "COLLATE", "AS", "JOIN", "ON", "NOT"}
    | {"BY", "FROM", "LATERAL", "TABLESAMPLE", "SAMPLE", "USING", "WHEN", "THEN", "ELSE", "CASE", "DISTINCT"}
)
"""Words that follow an operand and need another one."""

PREFIX = frozenset({"NOT", "CASE", "DISTINCT", "FROM", "LATERAL", "WHEN", "THEN", "ELSE", "ALL", "ANY", "SOME"})
"""Words that stand where an operand is expected and need one after them; all are reserved (FROM: ``IS DISTINCT FROM``)."""

NO_COLUMNS = RESERVED | frozenset(
    {
        "anti",
        "asof",
        "at",
        "authorization",
        "binary",
        "by",
        "collation",
        "concurrently",
        "cross",
        "freeze",
        "full",
        "glob",
    }
    | {
        "ilike",
        "inner",
        "is",
        "isnull",
        "join",
        "left",
        "like",
        "natural",
        "notnull",
        "outer",
        "overlaps",
        "positional",
    }
    | {"right", "semi", "similar", "tablesample", "unpack", "verbose"}
)
"""Words that are columns only in quotes: DuckDB also gives its operators and kinds of joins."""


def quoting(word: str) -> str | None:
    """Return a hint to quote a word that is a column only in quotes; None for others."""
    return f'If it is a column, write "{word}" in double quotes.' if word.casefold() in NO_COLUMNS else None

"""The model's expressions, which are DuckDB's SQL, as expressions of another database.

sqlglot passes functions that it does not know on, and some that it knows mean something else elsewhere. Only operators and
functions that mean the same in all these databases are translated.
"""

from __future__ import annotations

from typing import Any

from grouplearn.models.definition import ROW
from grouplearn.models.dialects.databases import Database, NotInDialect, sqlglot

#: Classes of sqlglot's tree that mean the same in all databases.
_PARTS_OF_TREES = "Column Identifier Literal Boolean Null Paren Cast DataType DataTypeParam Var Case If"
_OPERATORS = (
    "Neg Not And Or Add Sub Mul Div Mod IntDiv DPipe EQ NEQ GT GTE LT LTE Is NullSafeEQ NullSafeNEQ Between In Like"
)
_FUNCTIONS = (
    "Coalesce Nullif Greatest Least Abs Sqrt Exp Ln Pow Floor Ceil Sign Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh"
    " Upper Lower Length Trim Extract"
)
_SAME = frozenset(f"{_PARTS_OF_TREES} {_OPERATORS} {_FUNCTIONS}".split())
#: Parts of a time, by DuckDB's function.
_TIMES = {"Year": "YEAR", "Month": "MONTH", "Day": "DAY", "Hour": "HOUR", "Minute": "MINUTE", "Quarter": "QUARTER"}
_EXTRACTED = frozenset(_TIMES.values())
#: Types to which all databases cast values alike.
_CAST = ("DOUBLE", "VARCHAR", "TEXT", "DATE", "TIMESTAMP")
#: Types to which some databases round as DuckDB does.
_ROUNDED = ("SMALLINT", "INT", "BIGINT", "FLOAT")
_LN_10 = "2.302585092994046"
_PI = "3.141592653589793"


def translated(text: str, what: str, database: Database) -> Any:
    """Return sqlglot's tree of an expression, whose names are in ``database``'s case; raises NotInDialect.

    ``what`` names the expression: ``feature "x"``.
    """
    glot = sqlglot()
    exp = glot.exp
    try:
        tree = glot.parse_one(f"SELECT (\n{text}\n)", read="duckdb").expressions[0]
    except glot.errors.SqlglotError:
        raise _refusal(text, what, database, "sqlglot cannot read it") from None
    tree = tree.transform(lambda node: _rewritten(node, exp), copy=False)
    for node in tree.walk():
        if (why := _flaw(node, exp, database)) is not None:
            raise _refusal(text, what, database, why)
    for name in list(tree.find_all(exp.Identifier)):
        if not name.name.startswith(ROW):
            name.set("this", database.folded(name.name, bool(name.args.get("quoted"))))
        name.set("quoted", True)
    return tree


def _refusal(text: str, what: str, database: Database, why: str) -> NotInDialect:
    shown = " ".join(text.split())
    message = f"{what} cannot be written for {database.title}, for {why}: {shown}"
    return NotInDialect(message, "Make a column of it, there and here, and train the model on that.")


def _rewritten(node: Any, exp: Any) -> Any:
    """Return a node in the form that is checked: parts of times as EXTRACT, the constant of PI(), a logarithm by LN."""
    kind = type(node).__name__
    if kind == "Pi":
        return exp.Literal.number(_PI)
    if kind == "Log" and node.expression is None:
        return exp.Paren(this=exp.Div(this=exp.Ln(this=node.this), expression=exp.Literal.number(_LN_10)))
    if kind in _TIMES:
        return exp.Extract(this=exp.var(_TIMES[kind]), expression=node.this)
    if kind == "Anonymous" and node.name.lower() in ("date_part", "datepart") and len(node.expressions) == 2:
        part, value = node.expressions
        return exp.Extract(this=exp.var(part.name.upper()), expression=value)
    if kind == "Cast" and _is_truth(node.this, exp) and not node.to.is_type("boolean", "varchar", "text"):
        return number_of_truth(node.this.unnest(), exp)
    return node


def _is_truth(node: Any, exp: Any) -> bool:
    return isinstance(node.unnest(), exp.Predicate | exp.Connector | exp.Not | exp.Boolean)


def number_of_truth(condition: Any, exp: Any) -> Any:
    """Return 1 for true, 0 for false and NULL for NULL, as an expression."""
    return (
        exp.Case()
        .when(condition.copy(), exp.Literal.number("1"))
        .when(exp.not_(condition.copy()), exp.Literal.number("0"))
    )


def _flaw(node: Any, exp: Any, database: Database) -> str | None:
    """Return why a node does not mean the same elsewhere; None if it does."""
    kind = type(node).__name__
    if kind == "Anonymous":
        return f"it calls the function {node.name}"
    if kind not in _SAME:
        called = getattr(node, "sql_name", None)
        return f"it calls the function {called().lower()}" if called else f"it has {node.sql(dialect='duckdb')}"
    if kind == "Cast" and not _casts_alike(node.to, exp, database):
        return f"databases round differently where they cast to {node.to.sql(dialect='duckdb')}"
    if kind == "Extract" and node.name.upper() not in _EXTRACTED:
        return f"databases name the part {node.name} of a time differently"
    if kind in ("Greatest", "Least") and database.nulls_spread:
        return f"{kind.lower()} of a NULL is NULL there"
    if kind == "Trim" and set(node.args) - {"this"} and any(node.args[each] for each in node.args if each != "this"):
        return "it trims other characters than spaces"
    return None


def _casts_alike(kind: Any, exp: Any, database: Database) -> bool:
    name = kind.this.name if isinstance(kind.this, exp.DataType.Type) else str(kind.this)
    return name in _CAST or (database.rounds and name in _ROUNDED)

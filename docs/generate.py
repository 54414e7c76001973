"""Fills the pages of docs/reference in: what the grammar, the learners' declarations and the catalog's comments say.

A page has its own text, and places such as ``<!-- metrics -->`` ... ``<!-- end -->``. Each is filled by the function of that
name in ``MAKERS``, with the words that follow the name.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import duckdb

from grouplearn import errors
from grouplearn.bind.run import options
from grouplearn.catalog.checks.tables import creation
from grouplearn.data.encoding.encoder_calls import EncoderOption
from grouplearn.data.encoding.registry import CALLS
from grouplearn.learners import registry
from grouplearn.learners.contract.access import PATTERNS, AccessPattern
from grouplearn.learners.contract.config import Hyperparameter
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.series.lagged.features import CALLS as LAGS
from grouplearn.learners.series.lagged.features import DIFFERENCES
from grouplearn.learners.series.lagged.scaling import SCALE
from grouplearn.learners.series.lagged.training import STRATEGY
from grouplearn.models.label import Label
from grouplearn.models.outputs.forecast import Forecast
from grouplearn.models.outputs.output import Output
from grouplearn.models.outputs.outputs import OUTPUTS
from grouplearn.schedule.operators import OPERATORS
from grouplearn.statements import result_sql

DOCS = Path(__file__).parent
SQL = DOCS.parent / "sql"
_HEAD = ("hyperparameter", "type", "default", "allowed", "meaning", "as in")
_PLACE = re.compile(r"^<!-- (?P<maker>\w+)(?P<words>[^\n]*) -->\n(?:.*?\n)??<!-- end -->$", re.MULTILINE | re.DOTALL)


def pages() -> Iterator[Path]:
    """Yield the pages that have places to fill."""
    return (path for path in sorted(DOCS.rglob("*.md")) if _PLACE.search(path.read_text(encoding="utf-8")))


def filled(page: Path) -> str:
    """Return the text of a page with its places filled."""
    return _PLACE.sub(_fill, page.read_text(encoding="utf-8"))


def _fill(place: re.Match[str]) -> str:
    opening = place[0].split("\n", 1)[0]
    return f"{opening}\n{MAKERS[place['maker']](*place['words'].split())}\n<!-- end -->"


def grammar(*rules: str) -> str:
    """Return rules of the grammar as they are written in it."""
    text = (SQL / "grammar.ebnf").read_text(encoding="utf-8")
    found = {
        name: body for body, name in re.findall(r"^((\w+) +=.*?;)(?=\s*(?:\(\*[^;]*\*\)\s*)?$)", text, re.M | re.S)
    }
    return "\n".join(["```ebnf", *(found[rule] for rule in rules), "```"])


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    lines = [list(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def with_options() -> str:
    """Return the options of WITH."""
    return _options(options.WITH_OPTIONS)


def settings() -> str:
    """Return the settings of a session."""
    return _options(options.SETTINGS, "grouplearn_")


def _options(names: Iterable[str], prefix: str = "") -> str:
    return table(("option", "meaning"), ((f"`{prefix}{name}`", options.RUN_OPTIONS[name].doc) for name in names))


def encoders() -> str:
    """Return the encoders that have a call."""
    rows = ((f"`{form}`", meaning) for call in CALLS.values() for form, meaning in call.makes.items())
    return table(("encoder", "feature columns"), rows)


def encoder_options() -> str:
    """Return the options of encoders, those that several declare alike in one row."""
    calls: dict[EncoderOption, list[str]] = {}
    for call in CALLS.values():
        for option in call.options:
            calls.setdefault(option, []).append(f"`{call.name}`")
    rows = (
        (
            f"`{option.name}`",
            ", ".join(names),
            option.allowed,
            "required" if option.required else result_sql.shown(option.default),
            option.doc,
        )
        for option, names in calls.items()
    )
    return table(("option", "of", "allowed", "default", "meaning"), rows)


def earlier_values() -> str:
    """Return what learners of rows take besides their own hyperparameters where they forecast series."""
    rows = map(_hyperparameter, (*LAGS.values(), DIFFERENCES, SCALE, STRATEGY))
    return table(_HEAD, rows)


def learners() -> str:
    """Return a table of all learners, each with a link to its page."""
    rows = (
        (f"[`{name}`]({name}.md)", _tasks(learner), _sentence(learner.declaration.summary), learner.access.words)
        for name, learner in registry.LEARNERS.items()
    )
    return table(("learner", "tasks", "what it is", "trains on"), rows)


def about(name: str, solver: str = "") -> str:
    """Return the facts of a learner, or of one of its ways: tasks, epochs, access to rows, package."""
    learner = _way(name, solver)
    own = learner.declaration
    epochs = "no epochs" if own.default_epochs is None else f"at most {own.default_epochs} epochs"
    needs = f" Needs `{own.requires.install_hint}`." if own.requires else ""
    others = [each.declaration.solver for each in registry.ways(registry.LEARNERS[name])[1:] if not solver]
    ways = (
        f" Other solvers: {', '.join(f'[`{each}`]({_solver_page(name, each)}#{each})' for each in others)}."
        if others
        else ""
    )
    return f"Tasks: {_tasks(learner)}. Trains on {learner.access.words}, {epochs}.{needs}{ways}"


def _solver_page(name: str, solver: str) -> str:
    """Return the page that describes a solver, empty for that of the learner."""
    own = (DOCS / "reference" / "learners" / f"{name}.md").read_text(encoding="utf-8")
    return "" if f"\n## {solver}\n" in own else "solvers.md"


def hyperparameters(name: str, solver: str = "") -> str:
    """Return what a learner, or one of its ways, takes."""
    rows = map(_hyperparameter, _way(name, solver).declaration.hyperparameters)
    return table(_HEAD, rows)


def differences(name: str, other: str) -> str:
    """Return what a learner takes otherwise than another one does."""
    known = {each.name: _hyperparameter(each) for each in registry.LEARNERS[other].declaration.hyperparameters}
    own = map(_hyperparameter, registry.LEARNERS[name].declaration.hyperparameters)
    rows = [row for row in own if known.pop(row[0].strip("`"), None) != row]
    without = ", ".join(f"`{each}`" for each in known)
    return table(_HEAD, rows) + f"\n\nIt does not have {without}."


def _hyperparameter(own: Hyperparameter) -> tuple[str, ...]:
    return f"`{own.name}`", own.kind, result_sql.shown(own.default), result_sql.allowed(own), own.doc, own.source


def _way(name: str, solver: str) -> Learner:
    return next(
        each for each in registry.ways(registry.LEARNERS[name]) if not solver or each.declaration.solver == solver
    )


def _tasks(learner: Learner) -> str:
    return ", ".join(sorted(label.name for label in learner.declaration.labels))


def _sentence(summary: str) -> str:
    return summary[0].upper() + summary[1:]


def limits() -> str:
    """Return what operators do not run."""
    rows = []
    for name, declared in sorted(OPERATORS.items()):
        for runs in (runs for runs in dict.fromkeys(map(declared.how, PATTERNS)) if runs.reason):
            users = ", ".join(_users(each) for each in PATTERNS if declared.how(each) == runs)
            where = f"only with `executor = '{' or '.join(runs.runtimes)}'`" if runs.runtimes else "not"
            rows.append((f"`{name}`", users, where, runs.reason))
    return table(("operator", "learners", "runs", "because"), rows)


def _users(pattern: AccessPattern) -> str:
    """Return the learners, and the solvers of others, that read rows in this way."""
    names = [f"`{name}`" for name, learner in registry.LEARNERS.items() if learner.access.name == pattern.name]
    others = (way for learner in registry.LEARNERS.values() for way in registry.ways(learner)[1:])
    solvers = {f"`solver = '{way.declaration.solver}'`" for way in others if way.access.name == pattern.name}
    return ", ".join([*names, *sorted(solvers)])


def metrics() -> str:
    """Return the metrics."""
    outputs = [*registry.outputs()]
    rows = (
        (
            f"`{metric.name}`",
            ", ".join(sorted({_task(label, output) for label, output in outputs if output.metrics is family})),
            "greater" if metric.greater_is_better else "smaller",
            metric.meaning,
        )
        for family in dict.fromkeys(output.metrics for _, output in outputs)
        for metric in family.metrics
    )
    return table(("metric", "tasks", "better", "meaning"), rows)


def _task(label: Label, output: type[Output]) -> str:
    """Return what a learner of such outputs does; forecasts are of numbers, as other predictions are."""
    if OUTPUTS.get(label, output) is output:
        return label.name
    return (Forecast if issubclass(output, Forecast) else output).__name__.lower()


def exceptions() -> str:
    """Return the exceptions of ours, each with the one of PEP 249 that it is."""
    own = (getattr(errors, name) for name in errors.__all__)
    rows = (
        (
            f"`{each.__name__}`",
            f"`{_standard(each).__name__}`",
            inspect.cleandoc(each.__doc__ or "").splitlines()[0].replace("``", "`"),
        )
        for each in own
        if isinstance(each, type) and each.__module__ == errors.__name__
    )
    return table(("exception", "is a", "when"), rows)


def _standard(error: type[Exception]) -> type:
    return next(each for each in error.__mro__[1:] if each.__module__ != errors.__name__)


def catalog() -> str:
    """Return the tables of schema grouplearn, from their own comments."""
    with duckdb.connect() as connection:
        connection.execute(creation())
        names = connection.execute(
            "SELECT table_name, comment FROM duckdb_tables() WHERE schema_name = 'grouplearn' ORDER BY table_oid"
        ).fetchall()
        return "\n\n".join(f"### grouplearn.{name}\n\n{comment}{_columns(connection, name)}" for name, comment in names)


def _columns(connection: duckdb.DuckDBPyConnection, name: str) -> str:
    """Return the table of a table's columns, empty if they have no comments: they are those of another table."""
    query = """
        SELECT column_name, data_type, coalesce(comment, '') FROM duckdb_columns()
        WHERE schema_name = 'grouplearn' AND table_name = ? ORDER BY column_index
    """
    rows = connection.execute(query, [name]).fetchall()
    if not any(comment for _, _, comment in rows):
        return ""
    columns = ((f"`{column}`", kind, comment) for column, kind, comment in rows)
    return "\n\n" + table(("column", "type", "meaning"), columns)


MAKERS: Mapping[str, Callable[..., str]] = MappingProxyType(
    {
        each.__name__: each
        for each in (
            *(grammar, with_options, settings, encoders, encoder_options, limits, metrics, exceptions, catalog),
            *(learners, about, hyperparameters, differences, earlier_values),
        )
    }
)


if __name__ == "__main__":
    for page in pages():
        page.write_text(filled(page), encoding="utf-8")

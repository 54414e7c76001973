"""Writes docs/reference.md: its template, filled in from the grammar, the learners' declarations and the catalog's comments."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import duckdb

from grouplearn.bind.run import options
from grouplearn.catalog.checks.tables import creation
from grouplearn.data.encoding.calls import EncoderOption
from grouplearn.data.encoding.registry import CALLS
from grouplearn.learners import registry
from grouplearn.learners.contract.access import PATTERNS
from grouplearn.learners.contract.config import Hyperparameter
from grouplearn.learners.contract.learner import Learner
from grouplearn.models.metrics import sums as metrics
from grouplearn.models.outputs.outputs import OUTPUTS
from grouplearn.schedule.operators import OPERATORS
from grouplearn.statements import answers

DOCS = Path(__file__).parent
SQL = DOCS.parent / "sql"


def reference() -> str:
    """Return the page."""
    template = (DOCS / "reference.template.md").read_text(encoding="utf-8")
    parts = {
        "options": options_table(options.WITH_OPTIONS),
        "settings": options_table(options.SETTINGS, "grouplearn_"),
        "learners": "\n\n".join(map(learner_section, registry.LEARNERS)),
        "limits": limits_table(),
        "metrics": metrics_table(),
        "catalog": catalog_tables(),
        "encoders": encoders_table(),
        "encoder_options": encoder_options_table(),
    }
    filled = re.sub(r"^\{grammar ([\w ]+)\}$", lambda match: grammar(match[1].split()), template, flags=re.MULTILINE)
    return re.sub(r"^\{(\w+)\}$", lambda match: parts[match[1]], filled, flags=re.MULTILINE)


def grammar(rules: Iterable[str]) -> str:
    """Return rules of the grammar as they are written in it."""
    text = (SQL / "grammar.ebnf").read_text(encoding="utf-8")
    found = {
        name: body for body, name in re.findall(r"^((\w+) +=.*?;)(?=\s*(?:\(\*[^;]*\*\)\s*)?$)", text, re.M | re.S)
    }
    return "\n".join(found[rule] for rule in rules)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    lines = [list(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def options_table(names: Iterable[str], prefix: str = "") -> str:
    """Return the options of WITH, or the settings of the same names."""
    return table(("option", "meaning"), ((f"`{prefix}{name}`", options.RUN_OPTIONS[name].doc) for name in names))


def encoders_table() -> str:
    """Return the encoders that have a call."""
    rows = ((f"`{form}`", meaning) for call in CALLS.values() for form, meaning in call.makes.items())
    return table(("encoder", "feature columns"), rows)


def encoder_options_table() -> str:
    """Return the options of encoders, those that several declare alike in one row."""
    calls: dict[EncoderOption, list[str]] = {}
    for call in CALLS.values():
        for option in call.options:
            calls.setdefault(option, []).append(f"`{call.name}`")
    rows = (
        (f"`{option.name}`", ", ".join(names), option.allowed, encoder_default(option), option.doc)
        for option, names in calls.items()
    )
    return table(("option", "of", "allowed", "default", "meaning"), rows)


def encoder_default(option: EncoderOption) -> str:
    """Return what an option is if it is not given."""
    return "required" if option.required else answers.shown(option.default)


def learner_section(name: str) -> str:
    """Return what a learner declares."""
    first, *others = registry.ways(registry.LEARNERS[name])
    usual = f" `solver = '{first.declaration.solver}'` unless the statement says otherwise." if others else ""
    parts = [f"### {name}\n\n{about(first)}{usual}\n\n{hyperparameters_table(first)}"]
    parts += [
        f"#### {each.way}\n\n`WITH (solver = '{each.declaration.solver}')`: {about(each)}\n\n{hyperparameters_table(each)}"
        for each in others
    ]
    return "\n\n".join(parts)


def hyperparameters_table(learner: Learner) -> str:
    """Return what a way of a learner takes."""
    rows = (hyperparameter_row(parameter) for parameter in learner.declaration.hyperparameters)
    return table(("hyperparameter", "type", "default", "allowed", "meaning", "source"), rows)


def about(learner: Learner) -> str:
    """Return what a learner is, in words."""
    own = learner.declaration
    tasks = ", ".join(sorted(label.name for label in own.labels))
    epochs = "no epochs" if own.default_epochs is None else f"at most {own.default_epochs} epochs"
    needs = f" Needs `{own.requires.install_hint}`." if own.requires else ""
    summary = own.summary[0].upper() + own.summary[1:]
    return f"{summary}. Tasks: {tasks}. Trains on {learner.access.words}, {epochs}.{needs}"


def hyperparameter_row(parameter: Hyperparameter) -> tuple[str, ...]:
    """Return one row of a learner's table."""
    default = answers.shown(parameter.default)
    return f"`{parameter.name}`", parameter.kind, default, answers.allowed(parameter), parameter.doc, parameter.source


def limits_table() -> str:
    """Return what operators do not run."""
    rows = []
    for name, declared in sorted(OPERATORS.items()):
        limits = [runs for runs in dict.fromkeys(map(declared.how, PATTERNS)) if runs.reason]
        for runs in limits:
            access = " or ".join(sorted(each.words for each in PATTERNS if declared.how(each) == runs))
            where = f"only with `executor = '{' or '.join(runs.runtimes)}'`" if runs.runtimes else "not"
            rows.append((f"`{name}`", f"learners on {access}", where, runs.reason))
    return table(("operator", "of", "runs", "because"), rows)


def metrics_table() -> str:
    """Return the metrics."""
    rows = (
        (
            f"`{metric.name}`",
            ", ".join(sorted(label.name for label, output in OUTPUTS.items() if output.metrics is family)),
            "greater" if metric.greater_is_better else "smaller",
            metric.meaning,
        )
        for family in metrics.FAMILIES
        for metric in family.metrics
    )
    return table(("metric", "tasks", "better", "meaning"), rows)


def catalog_tables() -> str:
    """Return the tables of schema grouplearn, from their own comments."""
    with duckdb.connect() as connection:
        connection.execute(creation())
        names = connection.execute(
            "SELECT table_name, comment FROM duckdb_tables() WHERE schema_name = 'grouplearn' ORDER BY table_oid"
        ).fetchall()
        return "\n\n".join(
            f"### grouplearn.{name}\n\n{comment}\n\n{columns(connection, name)}" for name, comment in names
        )


def columns(connection: duckdb.DuckDBPyConnection, name: str) -> str:
    """Return the columns of a table of the catalog."""
    query = """
        SELECT column_name, data_type, coalesce(comment, '') FROM duckdb_columns()
        WHERE schema_name = 'grouplearn' AND table_name = ? ORDER BY column_index
    """
    rows = connection.execute(query, [name]).fetchall()
    return table(("column", "type", "meaning"), ((f"`{column}`", kind, comment) for column, kind, comment in rows))


if __name__ == "__main__":
    (DOCS / "reference.md").write_text(reference(), encoding="utf-8")

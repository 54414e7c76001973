"""Runs lines of the prompt or of a script: statements, and dot commands as DuckDB's shell has them."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grouplearn.frontends.python.scope import Scope
from grouplearn.frontends.shell import output
from grouplearn.frontends.shell.console import Console, Leave
from grouplearn.messages import did_you_mean
from grouplearn.visible import in_file_name, visible


@dataclass(frozen=True, slots=True)
class DotCommand:
    """``.name arguments``: its function, the number of its arguments, and its line in ``.help``."""

    name: str
    arguments: str
    summary: str
    run: Callable[[Console, Sequence[str]], None]
    least: int = 0
    most: int = 1


def run(console: Console, text: str) -> None:
    """Run a dot command, or the statements of a text in order; raise Failed at the first error."""
    if not text.lstrip().startswith("."):
        console.run(text)
        return
    with console.reported():
        _run_dot_command(console, text)


def run_file(console: Console, path: str) -> None:
    """Run a script of statements and dot commands."""
    with console.reported(), Path(path).open(encoding="utf-8", newline="") as lines:  # texts keep their line ends
        script = list(lines)
    run_lines(console, script)


def run_lines(console: Console, lines: Iterable[str]) -> None:
    """Run a script line by line, each statement when its semicolon is read."""
    texts = chunks(lines)
    while True:
        with console.reported():
            text = next(texts, None)
        if text is None:
            return
        run(console, text)


def chunks(lines: Iterable[str]) -> Iterator[str]:
    """Cut a script into dot commands and complete statements; an incomplete end is run as it is."""
    from grouplearn.parser.lexer.statement_split import Lines

    pending = Lines()
    for line in lines:
        if line.startswith(".") and pending.is_empty():
            yield line
        elif pending.end_with(line):
            yield pending.text()
            pending = Lines()
    if not pending.is_empty():
        yield pending.text()


def _run_dot_command(console: Console, line: str) -> None:
    """Run a line that starts with a dot; raises ValueError for an unknown command or a wrong argument."""
    try:
        words = shlex.split(line.strip().removesuffix(";"))
    except ValueError:
        raise ValueError(f"{line.strip()}: a quote is not closed") from None
    name, arguments = words[0].removeprefix("."), words[1:]
    command = COMMANDS.get(name)
    if command is None:
        hint = did_you_mean(f".{name}", [f".{known}" for known in COMMANDS])
        raise ValueError(f'Unknown command ".{name}". {hint + " " if hint else ""}Enter ".help" for help.')
    if not command.least <= len(arguments) <= command.most:
        raise ValueError(f"Usage: .{command.name} {command.arguments}".rstrip())
    command.run(console, arguments)


def _tables(console: Console, arguments: Sequence[str]) -> None:
    pattern = arguments[0] if arguments else "%"
    rows = console.connection.execute(
        """
        SELECT CASE WHEN database_name <> system.main.current_database()
                    THEN system.main.concat(database_name, '.', schema_name, '.', name)
                    WHEN schema_name <> system.main.current_schema() THEN system.main.concat(schema_name, '.', name)
                    ELSE name END AS shown
        FROM (SELECT database_name, schema_name, table_name AS name FROM system.main.duckdb_tables() WHERE NOT internal
              UNION ALL SELECT database_name, schema_name, view_name FROM system.main.duckdb_views() WHERE NOT internal)
        WHERE schema_name <> 'grouplearn' AND system.main."~~"(name, ?) ORDER BY shown ASC
        """,
        [pattern],
    ).fetchall()
    _print_in_columns([visible(name) for (name,) in rows])


def _print_in_columns(names: Sequence[str]) -> None:
    if not names:
        return
    width = max(map(len, names)) + 2
    per_line = max(1, shutil.get_terminal_size().columns // width)
    lines = -(-len(names) // per_line)
    for line in range(lines):
        print("".join(name.ljust(width) for name in names[line::lines]).rstrip())


def _schema(console: Console, arguments: Sequence[str]) -> None:
    pattern = arguments[0] if arguments else "%"
    rows = console.connection.execute(
        """
        SELECT sql FROM (
            SELECT 0 AS kind, schema_name, table_name AS name, sql FROM system.main.duckdb_tables() WHERE NOT internal
            UNION ALL SELECT 1, schema_name, view_name, sql FROM system.main.duckdb_views() WHERE NOT internal
            UNION ALL SELECT 2, schema_name, table_name, sql FROM system.main.duckdb_indexes())
        WHERE schema_name <> 'grouplearn' AND system.main."~~"(name, ?) AND sql IS NOT NULL ORDER BY name ASC, kind ASC
        """,
        [pattern],
    ).fetchall()
    for (sql,) in rows:
        print(output.exactly(sql.strip(), sys.stdout))


def _models(console: Console, _: Sequence[str]) -> None:
    relation = console.connection.relation("SHOW MODELS", None, Scope({}, {}))
    if relation is not None:
        console.show(relation, "SHOW MODELS")


def _mode(console: Console, arguments: Sequence[str]) -> None:
    if not arguments:
        print(f"current output mode: {console.layout.mode}")
        return
    mode = arguments[0].casefold()
    if mode not in output.MODE_NAMES:
        hint = did_you_mean(arguments[0], output.MODE_NAMES)
        allowed = ", ".join(output.MODE_NAMES)
        raise ValueError(f'Unknown mode "{arguments[0]}". Modes: {allowed}. {hint or ""}'.rstrip())
    console.layout.mode = mode


def _echo(console: Console, arguments: Sequence[str]) -> None:
    console.echo = _switch("echo", arguments[0])


def _timer(console: Console, arguments: Sequence[str]) -> None:
    console.timer = _switch("timer", arguments[0])


def _switch(command: str, word: str) -> bool:
    if word.casefold() not in ("on", "off"):
        raise ValueError(f"Usage: .{command} on|off")
    return word.casefold() == "on"


def _max_rows(console: Console, arguments: Sequence[str]) -> None:
    if not arguments:
        print(f"current max rows: {console.layout.max_rows}")
    elif arguments[0].isdecimal() and int(arguments[0]) > 0:
        console.layout.max_rows = int(arguments[0])
    else:
        raise ValueError("Usage: .maxrows COUNT, a positive number")


def _max_width(console: Console, arguments: Sequence[str]) -> None:
    if not arguments:
        width = console.layout.max_width
        print(f"current max width: {'the terminal' if width is None else width}")
    elif arguments[0].isdecimal():
        console.layout.max_width = int(arguments[0]) or None
    else:
        raise ValueError("Usage: .maxwidth COLUMNS, 0 for the terminal's width")


def _open(console: Console, arguments: Sequence[str]) -> None:
    console.open(arguments[0] if arguments else ":memory:")


def _read(console: Console, arguments: Sequence[str]) -> None:
    run_file(console, arguments[0])


def _report(console: Console, arguments: Sequence[str]) -> None:
    model, *named = arguments
    file = named[0] if named else f"{in_file_name(model.replace(chr(34), ''))}.html"
    page = console.connection.model(model).report(file)
    print(f"{visible(file)}: {len(page.encode()) / 1000:,.0f} kB")


def _exit(_: Console, arguments: Sequence[str]) -> None:
    if arguments and not arguments[0].isdecimal():
        raise ValueError("Usage: .exit [CODE]")
    raise Leave(int(arguments[0]) if arguments else 0)


def _help(_: Console, arguments: Sequence[str]) -> None:
    wanted = arguments[0].removeprefix(".") if arguments else ""
    found = [command for command in COMMANDS.values() if wanted in command.name]
    if not found:
        raise ValueError(f'No command has "{wanted}" in its name. Enter ".help" for all.')
    for command in found:
        print(f".{command.name} {command.arguments}".ljust(24) + command.summary)
    if not arguments:
        print('\nAnything else is SQL and ends with a semicolon. "SHOW LEARNERS;" lists what TRAIN can use.')


COMMANDS = {
    command.name: command
    for command in (
        DotCommand("echo", "on|off", "Print each statement before its result", _echo, least=1),
        DotCommand("exit", "?CODE?", "Leave the shell", _exit),
        DotCommand("help", "?COMMAND?", "Show this list", _help),
        DotCommand("maxrows", "?COUNT?", "Rows shown in duckbox mode (default 40)", _max_rows),
        DotCommand("maxwidth", "?COLUMNS?", "Width of duckbox mode, 0 for the terminal's", _max_width),
        DotCommand("mode", "?MODE?", f"Output: {', '.join(output.MODE_NAMES)}", _mode),
        DotCommand("models", "", "Show the trained models (SHOW MODELS)", _models, most=0),
        DotCommand("open", "?FILE?", "Close this database and open another", _open),
        DotCommand("quit", "?CODE?", "Leave the shell", _exit),
        DotCommand("read", "FILE", "Run a script", _read, least=1),
        DotCommand("report", "MODEL ?FILE?", "Write a page about a model, MODEL.html", _report, least=1, most=2),
        DotCommand("schema", "?PATTERN?", "Show the CREATE statements of tables and views", _schema),
        DotCommand("tables", "?PATTERN?", "List tables and views whose names are LIKE the pattern", _tables),
        DotCommand("timer", "on|off", "Print how long each statement takes", _timer, least=1),
    )
}

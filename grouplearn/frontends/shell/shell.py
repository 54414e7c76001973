"""``grouplearn``: a small shell with DuckDB's habits, in which our statements work."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from grouplearn.errors import Error
from grouplearn.frontends.python.dbapi import Connection, connect
from grouplearn.frontends.shell.console import Console, Failed, Leave, StatementStopped, explained
from grouplearn.frontends.shell.dotcommands import run, run_file, run_lines
from grouplearn.frontends.shell.output import MODES, OutputFormat
from grouplearn.messages import did_you_mean
from grouplearn.visible import visible

SYNOPSIS = """\
Usage: grouplearn [OPTIONS] [FILE [SQL]]
       grouplearn duckdb [OPTIONS OF DUCKDB | --install]
       grouplearn report FILE MODEL [-o OUT]"""
USAGE = f"""\
{SYNOPSIS}

FILE is a DuckDB database; it is created if it does not exist. Without it the database is in memory.
SQL after it is run as with -c. "grouplearn duckdb" is your own duckdb shell with our statements in it, "grouplearn report"
writes a page about a model. (A database file of one of these names is ./duckdb or ./report.)

  -c SQL          run SQL (or a dot command) and exit; may be repeated
  -f FILE         run a script and exit; may be repeated
  -init FILE      run a script before anything else
  -readonly       open the database read-only
  -echo           print each statement before its result
  -no-stdin       exit after the options, do not read standard input
  -box -csv -json -jsonlines -line -markdown
                  print results in this format
  -version        print the versions of grouplearn and DuckDB
  -help           print this text

Exit status: 0, or 1 when a statement failed (the rest is not run), 2 for a wrong option, 130 after Ctrl-C.
"""


class UsageError(Exception):
    """The command line is wrong."""


@dataclass(slots=True)
class Options:
    """The command line: ``actions`` are ("c" | "f", text or path) in the order given."""

    path: str | None = None
    actions: list[tuple[str, str]] = field(default_factory=list)
    init: str | None = None
    read_only: bool = False
    echo: bool = False
    mode: str = "duckbox"
    stdin: bool = True
    show: str | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the shell and return its exit code."""
    _have_streams()
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["duckdb"]:
        from grouplearn.frontends.native import launch

        return launch.main(words[1:])
    if words[:1] == ["report"]:
        from grouplearn.frontends.report import command as report_command

        return report_command.main(words[1:])
    try:
        options = parse_arguments(words)
    except UsageError as error:
        print(f'grouplearn: {visible(str(error))}\n{SYNOPSIS}\n"grouplearn -help" lists the options.', file=sys.stderr)
        return 2
    if options.show is not None:
        print(USAGE if options.show == "help" else versions(), end="\n" if options.show == "version" else "")
        return 0
    try:
        return _run(options, lambda path, read_only: connect(path, read_only=read_only))
    except BrokenPipeError:  # the reader of our output has ended: `grouplearn ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _have_streams() -> None:
    """Open missing standard streams, and use UTF-8 where the locale has only ASCII.

    Otherwise the next opened file would get the number of a closed stream, and its output.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  (to the end of the process)
        elif isinstance(stream, io.TextIOWrapper):
            ascii_only = codecs.lookup(stream.encoding).name == "ascii"
            # Invalid input is refused where it is read.
            errors = "strict" if name == "stdin" else stream.errors
            stream.reconfigure(encoding="utf-8" if ascii_only else stream.encoding, errors=errors)


def _as_utf8(word: str) -> str:
    """Return a command line word as UTF-8 if Python could not decode it in the locale and kept its bytes."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return os.fsencode(word).decode(errors="surrogateescape")
    return word


def parse_arguments(arguments: Sequence[str]) -> Options:
    """Parse the command line; options may have one dash or two."""
    options = Options()
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            if options.path is None:
                options.path = word
            else:
                options.actions.append(("c", word))
            continue
        _read_option(options, word.lstrip("-"), word, rest)
    return options


def _read_option(options: Options, name: str, word: str, rest: list[str]) -> None:
    if name in MODES:
        options.mode = name
    elif name in _SWITCHES:
        _SWITCHES[name](options)
    elif name in _WITH_VALUE:
        if not rest:
            raise UsageError(f"{word} needs {_WITH_VALUE[name]}")
        value = rest.pop(0)
        if name == "init":
            options.init = value
        else:
            options.actions.append((name[0], value))
    else:
        hint = did_you_mean(f"-{name}", [f"-{known}" for known in (*MODES, *_SWITCHES, *_WITH_VALUE)])
        raise UsageError(f"unknown option {word}. {hint or ''}".rstrip())


def _read_only(options: Options) -> None:
    options.read_only = True


def _echo(options: Options) -> None:
    options.echo = True


def _no_stdin(options: Options) -> None:
    options.stdin = False


def _show_version(options: Options) -> None:
    options.show = "version"


def _show_help(options: Options) -> None:
    options.show = "help"


_SWITCHES: dict[str, Callable[[Options], None]] = {
    "readonly": _read_only,
    "echo": _echo,
    "no-stdin": _no_stdin,
    "version": _show_version,
    "help": _show_help,
    "h": _show_help,
}
_WITH_VALUE = {"c": "SQL", "f": "a file", "file": "a file", "init": "a file"}


def versions() -> str:
    """Return ``grouplearn x.y.z (DuckDB x.y.z)``."""
    import duckdb

    import grouplearn

    return f"grouplearn {grouplearn.__version__} (DuckDB {duckdb.__version__})"


def _run(options: Options, open_database: Callable[[str, bool], Connection]) -> int:
    path = options.path or ":memory:"
    try:
        console = Console(open_database, path, options.read_only, OutputFormat(options.mode), echo=options.echo)
    except (Error, OSError) as error:
        print(explained(error), file=sys.stderr)
        return 1
    try:
        return _run_actions(console, options)
    except Leave as leave:
        return leave.code
    except (StatementStopped, KeyboardInterrupt):
        return 130
    except Failed:
        return 1
    finally:
        console.close()


def _run_actions(console: Console, options: Options) -> int:
    if options.init is not None:
        run_file(console, options.init)
    for kind, value in options.actions:
        if kind == "c":
            run(console, _as_utf8(value))
        else:
            run_file(console, value)
    if options.actions or not options.stdin:
        return 0
    if sys.stdin.isatty() and sys.stdout.isatty():
        from grouplearn.frontends.shell.prompt import interact

        print(_banner(console.path))
        return interact(console)
    run_lines(console, sys.stdin)
    return 0


def _banner(path: str) -> str:
    lines = [versions(), 'Enter ".help" for usage hints.']
    if path == ":memory:":
        lines += ["Connected to a transient in-memory database.", 'Use ".open FILENAME" to open a file.']
    return "\n".join(lines)

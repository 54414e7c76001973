"""``grouplearn report FILE MODEL [-o OUT]``: a page about a model, from the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grouplearn.data.files.own_files import replace_file
from grouplearn.errors import Error
from grouplearn.frontends.python.dbapi import connect
from grouplearn.frontends.shell.console import explained
from grouplearn.visible import in_file_name, visible

USAGE = """\
Usage: grouplearn report FILE MODEL [-o OUT]

Writes one self-contained HTML page about a trained model: the best trial of each group, pooled models and models per
group, learning curves, importance, failures, the schedule. FILE is a DuckDB database; MODEL may be qualified (main.m).

  -o OUT   the file to write, by default MODEL.html here; - is standard output
"""


@dataclass(frozen=True, slots=True)
class Request:
    """The parsed command line; ``out`` None is standard output. ``named``: the user named the file, which may be a link."""

    database: str
    model: str
    out: Path | None
    named: bool


def main(arguments: Sequence[str]) -> int:
    """Write the page and return the exit code: 0, 1 for an unknown model, 2 for a wrong command line."""
    if any(word in ("-h", "-help", "--help") for word in arguments):
        print(USAGE, end="")
        return 0
    request = parse(arguments)
    if request is None:
        print(USAGE, end="", file=sys.stderr)
        return 2
    try:
        with connect(request.database, read_only=True, progress=None) as connection:
            page = connection.model(request.model).report(request.out if request.named else None)
        if request.out is not None and not request.named:
            replace_file(request.out, page.encode(), mode=0o644)  # a link is replaced, its target left alone
        written = f"{visible(str(request.out))}: {len(page.encode()) / 1000:,.0f} kB"
        print(page if request.out is None else written, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Error as error:
        print(explained(error), file=sys.stderr)
        return 1
    except OSError as error:  # of the output: DuckDB has its own errors for the database
        print(f'Cannot write "{visible(str(request.out))}": {error.strerror}', file=sys.stderr)
        return 1
    return 0


def parse(arguments: Sequence[str]) -> Request | None:
    """Parse the command line; None if it is wrong."""
    words, out = list(arguments), ""
    for place, word in enumerate(words):
        if word in ("-o", "--output", "-output"):
            if place + 1 == len(words):
                return None
            out = words[place + 1]
            del words[place : place + 2]
            break
    if len(words) != 2 or any(word.startswith("-") for word in words):
        return None
    database, model = words
    file = out or f"{in_file_name(model.replace(chr(34), ''))}.html"
    return Request(database, model, None if file == "-" else Path(file), bool(out))

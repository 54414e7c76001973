"""The interactive prompt: multi-line editing up to the semicolon, history, colours and completion."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer

from grouplearn.data.files.own_files import NotOwn, own_file
from grouplearn.frontends.completion import completions
from grouplearn.frontends.shell.colours import SqlColours
from grouplearn.frontends.shell.console import Console, Failed, Leave
from grouplearn.frontends.shell.dotcommands import COMMANDS, run
from grouplearn.parser.parse import is_complete

PROMPT = "grouplearn> "
CONTINUATION = "       ...> "


def interact(console: Console) -> int:
    """Read and run statements until Ctrl-D or ``.exit``; return the exit code."""
    session: PromptSession[str] = PromptSession(
        history=_history(),
        lexer=PygmentsLexer(SqlColours),
        completer=SqlCompleter(console),
        complete_while_typing=False,
        multiline=True,
        prompt_continuation=CONTINUATION,
        key_bindings=_enter_ends_statement(),
    )
    while True:
        try:
            run(console, session.prompt(PROMPT))
        except (KeyboardInterrupt, Failed):
            continue
        except EOFError:
            return 0
        except Leave as leave:
            return leave.code
        finally:
            sys.stdout.flush()


def _history() -> History:
    """Return the history; statements contain secrets, so only the user can read the file."""
    path = Path.home() / ".grouplearn_history"
    try:
        with own_file(path, "a+b") as file:
            os.fchmod(file.fileno(), 0o600)
    except NotOwn as error:
        print(f"What you type is not kept in {path}: {error.strerror}.", file=sys.stderr)
        return InMemoryHistory()
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def ends_input(text: str) -> bool:
    """Whether Enter runs ``text``: if it is empty, a dot command, or a complete statement."""
    stripped = text.strip()
    return not stripped or stripped.startswith(".") or (stripped.endswith(";") and is_complete(text))


def _enter_ends_statement() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None
        elif ends_input(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings


class SqlCompleter(Completer):
    """Completes dot commands, and SQL by what the statement before the cursor asks for."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        """Yield completions of the word before the cursor."""
        before = document.text_before_cursor
        if before.startswith(".") and " " not in before:
            word, found = before, [name for name in (f".{name}" for name in COMMANDS) if name.startswith(before)]
        else:
            word, found = completions(before, self._console.connection)
        yield from (Completion(each, start_position=-len(word)) for each in found)

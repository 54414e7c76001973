"""The entry point: a string of statements -> DuckDB's, byte for byte, and ours, as frozen nodes."""

from collections.abc import Callable, Sequence
from itertools import islice

from grouplearn.errors import ParseError
from grouplearn.messages import Span
from grouplearn.parser.lexer.cursor import Cursor
from grouplearn.parser.lexer.statement_split import HEAD_LENGTH, TextPiece, split
from grouplearn.parser.lexer.tokens import Kind, Token, lex, unquote
from grouplearn.parser.manage import (
    SETTING_PREFIX,
    parse_alter,
    parse_calibrate,
    parse_describe,
    parse_drop,
    parse_evaluate,
    parse_explain,
    parse_reset_calibration,
    parse_set,
    parse_show,
)
from grouplearn.parser.misspelt import explained, for_without_using, misspelt
from grouplearn.parser.nested import parse_nested, prepared
from grouplearn.parser.runs import parse_drop_run, parse_refresh, parse_resume, parse_retry
from grouplearn.parser.statements import OurStatement, Passthrough, Statement
from grouplearn.parser.train import parse_train
from grouplearn.parser.transfer import parse_export, parse_import

_Parser = Callable[[Cursor], OurStatement]
#: Words that, with the first, identify our statements.
_SUBJECTS = ("TRAIN", "MODEL", "MODELS", "LEARNER", "LEARNERS", "RUN", "RUNS", "FAILED", "CALIBRATION")


def parse(text: str) -> tuple[Statement, ...]:
    """Return the statements of ``text`` in order; spans are offsets into ``text``.

    A ``Passthrough`` holds the text of one DuckDB statement from the end of the previous one, including white space,
    comments and ``;``, so a text without our statements is the concatenation of its passthroughs. Raises ParseError or
    NotSupportedHere, located in ``text``, for a statement of ours that is malformed or not supported; never for DuckDB's,
    however broken.
    """
    statements: list[Statement] = []
    blank_start = 0
    for piece in split(text):
        parser = _parser_of(text, piece.start, piece.stop, piece.head)
        if parser is not None:
            statements.append(parser(Cursor(text, piece.start, piece.stop)))
        elif piece.head and (nested := _parse_nested(text, piece.start, piece.stop, piece.head)) is not None:
            statements.append(nested)
        elif piece.head:
            statements.append(_passthrough(text, piece if statements else piece._replace(start=blank_start)))
        elif statements and isinstance(statements[-1], Passthrough):
            before = statements.pop()
            assert isinstance(before, Passthrough)  # noqa: S101
            statements.append(_passthrough(text, piece._replace(start=before.span.start)))
    if not statements and text:
        return (Passthrough(text, Span(0, len(text))),)
    return tuple(statements)


def parse_piece(text: str, start: int, stop: int) -> OurStatement:
    """Return the statement ``text[start:stop]``, which is ours or contains ours; spans are offsets into ``text``."""
    head = tuple(islice(lex(text, start, stop), HEAD_LENGTH))
    parser = _parser_of(text, start, stop, head)
    if parser is not None:
        return parser(Cursor(text, start, stop))
    nested = _parse_nested(text, start, stop, head)
    if nested is None:
        unknown = ParseError("this is not a statement of grouplearn's", text=text, span=Span(start, stop))
        raise misspelt(text, start, stop) or unknown
    return nested


def is_complete(text: str) -> bool:
    """Whether ``text`` is blank or ends with a ``;`` outside quotes, comments and brackets; for interactive shells."""
    pieces = split(text)
    if not pieces:
        return True
    last = pieces[-1]
    return last.stop < last.end or not last.head


def _parse_nested(text: str, start: int, stop: int, head: Sequence[Token]) -> OurStatement | None:
    """As ``parse_nested``; raises ParseError for PREPARE of our statements."""
    begins = prepared_ours(head)
    if begins is None or _parser_for(head[begins:]) in (parse_train, parse_evaluate, parse_show, parse_describe):
        nested = parse_nested(text, start, stop)  # its errors are more specific
        if begins is None or nested is not None:
            return nested
    verb, *others = head[begins:]
    until = next((token for token in others if token.word in _SUBJECTS), verb)
    words = f"{verb.word} {until.word}" if until is not verb else verb.word
    message = f"{words} cannot stand inside another statement"
    raise ParseError(message, text=text, span=Span(verb.start, verb.end), hint="Run it by itself.")


def prepared_ours(head: Sequence[Token]) -> int | None:
    """Return where a statement of ours begins that PREPARE would store, None if there is none."""
    begins = prepared(head)
    return None if begins is None or _parser_for(head[begins:]) is None else begins


def _passthrough(text: str, piece: TextPiece) -> Passthrough:
    return Passthrough(text[piece.start : piece.end], Span(piece.start, piece.end))


def _parser_of(text: str, start: int, stop: int, head: Sequence[Token]) -> _Parser | None:
    """Return the parser of the statement ``text[start:stop]`` if it is ours; ``head`` are its first tokens."""
    parser = _parser_for(head)
    return None if parser is parse_train and for_without_using(text, start, stop) else parser


def _parser_for(head: Sequence[Token]) -> _Parser | None:
    """Return the parser of a statement of ours, judged by its first tokens, or None for DuckDB's."""
    if not head:
        return None
    words = [token.word for token in head]
    if words[0] == "TRAIN":
        # train(...), train.x or train + 1 are expressions, and thus DuckDB's.
        return parse_train if len(head) == 1 or head[1].kind is not Kind.SYMBOL else None
    if words[0] == "EXPLAIN":
        return parse_explain if _parser_for(head[explained(head) :]) in (parse_train, parse_refresh) else None
    if words[:2] == ["RESET", "CALIBRATION"]:
        return None if _dotted(head, 2) else parse_reset_calibration
    if words[0] in ("SET", "RESET"):
        return parse_set if _is_our_setting(head) else None
    if words[0] in ("SHOW", "DESCRIBE", "DESC"):
        return _parser_for_listing(head, words)
    if words[:1] == ["CALIBRATE"]:
        return parse_calibrate if len(head) == 1 or head[1].kind is not Kind.SYMBOL else None
    without_replace = words[:1] + words[3:] if words[1:3] == ["OR", "REPLACE"] else words
    followed = _dotted(head, len(words) - len(without_replace) + 2)
    return None if followed else _BY_WORDS.get(tuple(without_replace[:2])) or _retry(words)


def _retry(words: list[str]) -> _Parser | None:
    return parse_retry if words[:3] == ["RETRY", "FAILED", "MODEL"] else None


def _dotted(head: Sequence[Token], position: int) -> bool:
    return len(head) > position and head[position].is_symbol(".", "(")


def _parser_for_listing(head: Sequence[Token], words: list[str]) -> _Parser | None:
    """SHOW MODELS is ours; ``DESCRIBE model`` alone and ``DESCRIBE model.t`` refer to the user's tables."""
    if len(words) < 2 or _dotted(head, 2):
        return None
    if words[0] == "SHOW":
        return parse_show if words[1] in ("MODELS", "LEARNERS", "RUNS") or words[1:3] == ["FUNCTIONS", "OF"] else None
    return parse_describe if words[1] in ("MODEL", "LEARNER") and len(words) > 2 else None


def _is_our_setting(head: Sequence[Token]) -> bool:
    position = 2 if len(head) > 2 and head[1].word in ("SESSION", "LOCAL", "GLOBAL") else 1
    if len(head) <= position or not head[position].is_identifier:
        return False
    return unquote(head[position]).lower().startswith(SETTING_PREFIX)


_BY_WORDS: dict[tuple[str, ...], _Parser] = {
    ("CREATE", "MODEL"): parse_train,
    ("DROP", "MODEL"): parse_drop,
    ("ALTER", "MODEL"): parse_alter,
    ("EVALUATE", "MODEL"): parse_evaluate,
    ("RESUME", "MODEL"): parse_resume,
    ("DROP", "RUN"): parse_drop_run,
    ("REFRESH", "MODEL"): parse_refresh,
    ("EXPORT", "MODEL"): parse_export,
    ("IMPORT", "MODEL"): parse_import,
}

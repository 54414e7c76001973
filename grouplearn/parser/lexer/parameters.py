"""Parameters: ``?`` numbered over one statement, ``$1`` and ``$name`` found in its fragments."""

from collections.abc import Mapping, Sequence

from grouplearn.errors import ParseError
from grouplearn.messages import Span
from grouplearn.parser.lexer.tokens import Kind, Token
from grouplearn.parser.statements import Parameter

_STYLES = {"?": '"?"', "1": '"$1"', "a": '"$name"'}


def number_parameters(text: str, tokens: Sequence[Token]) -> dict[int, str]:
    """Return parameter names by token start: ``?`` is numbered from 1 in order of appearance, ``?2`` is ``$2``.

    Raises ParseError when ``?``, ``$1`` and ``$name`` are mixed.
    """
    names: dict[int, str] = {}
    first = ""
    for token in tokens:
        if token.kind is Kind.PARAMETER:
            label = token.text[1:]
            style = "?" if not label else "1" if label[0] in "0123456789" else "a"
            first = first or style
            if style != first:
                raise ParseError(
                    f"parameters are written as {_STYLES[first]} and as {_STYLES[style]} in one statement",
                    text=text,
                    span=token.span,
                    hint="Use one way throughout.",
                )
            names[token.start] = label or str(len(names) + 1)
    return names


def numbered_text(
    text: str, span: Span, tokens: Sequence[Token], names: Mapping[int, str], before: str, after: str
) -> tuple[str, tuple[Parameter, ...]]:
    """Return ``before + text[span] + after`` with each parameter as ``$name``, and their positions in it.

    A space separates a parameter from an adjacent word, so that a value can replace it.
    """
    if not names:
        return before + text[span.start : span.end] + after, ()
    result, copied = before, span.start
    parameters: list[Parameter] = []
    for token in tokens:
        if token.kind is not Kind.PARAMETER:
            continue
        result += text[copied : token.start]
        if result and _touches(result[-1]):
            result += " "
        name = names[token.start]
        parameters.append(Parameter(name, len(result), len(result) + len(name) + 1))
        result += f"${name}"
        copied = token.end
        if copied < span.end and _touches(text[copied]):
            result += " "
    return result + text[copied : span.end] + after, tuple(parameters)


def _touches(character: str) -> bool:
    return character.isalnum() or character in "_$?" or not character.isascii()

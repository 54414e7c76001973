"""A position in the tokens of one statement, and the helpers of grammar rules."""

from collections.abc import Iterable, Sequence
from typing import NoReturn

from grouplearn.errors import NotSupportedHere, ParseError
from grouplearn.interrupting import with_checks
from grouplearn.messages import Span, did_you_mean
from grouplearn.parser.lexer.keywords import RESERVED
from grouplearn.parser.lexer.parameters import number_parameters, numbered_text
from grouplearn.parser.lexer.statement_split import CLOSING, OPENING
from grouplearn.parser.lexer.tokens import Kind, Token, lex, unquote
from grouplearn.parser.statements import Name, QualifiedName, Sql

_PAIRS = {"(": ")", "[": "]", "{": "}"}
_BROKEN = {"'": "string", '"': "quoted identifier", "`": "quoted identifier", "/": "comment", "$": "string"}


class Cursor:
    """Tokens of ``text[start:stop]``, with every quote and bracket known to be closed.

    Positions are indexes into ``tokens``, which ends with an END token; ``closing`` maps an opening bracket's
    position to its closing one. Raises ParseError for a quote, comment or bracket that is not closed.
    """

    def __init__(self, text: str, start: int, stop: int) -> None:
        self.text = text
        tokens = list(with_checks(lex(text, start, stop)))
        end = tokens[-1].end if tokens else start
        self.tokens: Sequence[Token] = (*tokens, Token(Kind.END, "", end, end))
        self.index = 0
        self.closing = self._match_brackets()
        self._numbers = number_parameters(text, self.tokens)

    def within(self, low: int, high: int) -> "Cursor":
        """Return a cursor over ``tokens[low:high]``; parameters keep their numbers."""
        inner = Cursor(self.text, self.tokens[low].start, self.tokens[high - 1].end)
        inner._numbers = self._numbers
        return inner

    def _match_brackets(self) -> dict[int, int]:
        closing: dict[int, int] = {}
        opened: list[int] = []
        for position, token in enumerate(self.tokens):
            if token.kind is Kind.BROKEN:
                self._reject_unclosed(token)
            if token.kind is not Kind.SYMBOL:
                continue
            if token.text in OPENING:
                opened.append(position)
            elif token.text in CLOSING:
                if not opened or _PAIRS[self.tokens[opened[-1]].text] != token.text:
                    wrong = f'cannot close "{self.tokens[opened[-1]].text}"' if opened else "closes nothing"
                    self.fail(f'"{token.text}" {wrong}', token)
                closing[opened.pop()] = position
        if opened:
            token = self.tokens[opened[-1]]
            self.fail(f'"{token.text}" is never closed', token, f'Add the missing "{_PAIRS[token.text]}".')
        return closing

    def _reject_unclosed(self, token: Token) -> NoReturn:
        opener = token.text.lstrip("eEnNxXbB")[:1]
        width = 2 if opener == "/" else token.text.find("$", 1) + 1 if opener == "$" else token.text.find(opener) + 1
        raise ParseError(f"unterminated {_BROKEN[opener]}", text=self.text, span=Span(token.start, token.start + width))

    # Looking and moving.

    def peek(self, offset: int = 0) -> Token:
        """Return the token ``offset`` places ahead; beyond the end the END token."""
        return self.tokens[min(self.index + offset, len(self.tokens) - 1)]

    def advance(self) -> Token:
        """Return the current token and move past it."""
        token = self.peek()
        if token.kind is not Kind.END:
            self.index += 1
        return token

    def at(self, *words: str) -> bool:
        """Whether the next tokens are these unquoted words."""
        return all(self.peek(offset).word == word for offset, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Move past these words if they come next."""
        found = self.at(*words)
        self.index += len(words) if found else 0
        return found

    def expect(self, *words: str, hint: str | None = None) -> None:
        """Move past these words or raise ParseError at the first that differs."""
        for word in words:
            if not self.accept(word):
                self.unexpected(word, hint or self.suggest(self.peek(), (word,)))

    def accept_symbol(self, *symbols: str) -> bool:
        """Move past one of these symbols if it comes next."""
        found = self.peek().is_symbol(*symbols)
        self.index += found
        return found

    def expect_end(self, allowed: str = "the end of the statement") -> None:
        """Raise ParseError unless the statement ends here."""
        if self.peek().kind is not Kind.END:
            self.unexpected(allowed)

    # Failing.

    def fail(self, message: str, place: Token | Span, hint: str | None = None) -> NoReturn:
        """Raise ParseError at ``place``."""
        raise ParseError(message, text=self.text, span=_span(place), hint=hint)

    def not_supported(self, what: str, place: Token | Span, hint: str | None = None) -> NoReturn:
        """Raise NotSupportedHere at ``place``."""
        raise NotSupportedHere(f"{what} is not supported yet", text=self.text, span=_span(place), hint=hint)

    def unexpected(self, wanted: str, hint: str | None = None) -> NoReturn:
        """Raise ParseError: ``wanted`` was expected instead of the current token."""
        token = self.peek()
        found = "the end of the statement" if token.kind is Kind.END else shown(token)
        self.fail(f"expected {wanted}, not {found}", token, hint)

    @staticmethod
    def suggest(token: Token, allowed: Iterable[str]) -> str | None:
        """Return a "did you mean" for a misspelt word."""
        return did_you_mean(token.text, allowed) if token.kind is Kind.WORD else None

    # Names and fragments.

    def name(self, what: str) -> Name:
        """Read an identifier; ``what`` says what it names."""
        token = self.peek()
        if not token.is_identifier:
            hint = "Names are written bare or in double quotes."
            self.unexpected(what, hint if token.kind is Kind.STRING else None)
        if token.word.lower() in RESERVED:
            hint = f'"{token.text}" is a reserved word; write it in double quotes to use it as a name.'
            self.unexpected(what, hint)
        return self.name_of(self.advance())

    def name_of(self, token: Token) -> Name:
        """Return the name of an identifier token."""
        value = unquote(token)
        if not value:
            self.fail("a name cannot be empty", token)
        return Name(value, token.span)

    def own_name(self, what: str) -> Name:
        """Read the name of a learner, metric, option ...: lower case unless quoted."""
        quoted = self.peek().kind is Kind.QUOTED
        name = self.name(what)
        return name if quoted else Name(name.value.lower(), name.span)

    def hyperparameter(self, what: str) -> Name:
        """Read the name of a hyperparameter or an option, before which its learner may stand: ``[learner.]name``.

        The option ``offset`` is a reserved word, and nothing else could stand here.
        """
        first = self.name_of(self.advance()) if self.peek().word.lower() == "offset" else self.own_name(what)
        if not self.accept_symbol("."):
            return first
        name = self.own_name(what)
        return Name(name.value, Span(first.span.start, name.span.end), first.value)

    def model_name(self) -> QualifiedName:
        """Read ``[catalog.][schema.]name``."""
        parts = [self.name("a model name")]
        while self.peek().is_symbol("."):
            if len(parts) == 3:
                self.fail("too many parts in a model name", self.peek(), "At most catalog.schema.name.")
            self.advance()
            token = self.peek()  # after a dot, reserved words are names too, as in DuckDB
            if not token.is_identifier:
                self.unexpected("a model name")
            parts.append(self.name_of(self.advance()))
        return QualifiedName(tuple(parts))

    def open_bracket(self, what: str, hint: str | None = None) -> tuple[int, int]:
        """Move past a bracketed list and return the positions between ``(`` and ``)``."""
        if not self.peek().is_symbol("("):
            self.unexpected(f'"(" after {what}', hint)
        low = self.index + 1
        high = self.closing[self.index]
        self.index = high + 1
        return low, high

    def items(self, low: int, high: int) -> list[tuple[int, int]]:
        """Cut ``tokens[low:high]`` at its outermost commas; one trailing comma is allowed, as in DuckDB."""
        ranges: list[tuple[int, int]] = []
        start = position = low
        while position < high:
            if self.tokens[position].is_symbol(","):
                if position == start:
                    self.fail('an item is missing before ","', self.tokens[position])
                ranges.append((start, position))
                start = position + 1
            position = self.closing.get(position, position) + 1
        if start < high:
            ranges.append((start, high))
        return ranges

    def outermost(self, low: int, high: int) -> Iterable[int]:
        """Yield the positions in ``tokens[low:high]`` outside all brackets, opening brackets included."""
        position = low
        while position < high:
            yield position
            position = self.closing.get(position, position) + 1

    def is_bracketed(self, low: int, high: int) -> bool:
        """Whether ``tokens[low:high]`` is one bracket ``( ... )``."""
        return high - low >= 2 and self.tokens[low].is_symbol("(") and self.closing[low] == high - 1

    def is_query(self, low: int, high: int) -> bool:
        """Whether ``tokens[low:high]`` starts like a query."""
        return low < high and self.tokens[low].word in ("SELECT", "FROM", "WITH", "VALUES", "TABLE", "PIVOT", "UNPIVOT")

    def span(self, low: int, high: int) -> Span:
        """Return the range of ``tokens[low:high]``, which is not empty."""
        return Span(self.tokens[low].start, self.tokens[high - 1].end)

    def sql(self, low: int, high: int, before: str = "", after: str = "") -> Sql:
        """Return ``tokens[low:high]`` as a fragment, between ``before`` and ``after``; ``?`` becomes ``$1``, ``$2`` ..."""
        span = self.span(low, high)
        text, parameters = numbered_text(self.text, span, self.tokens[low:high], self._numbers, before, after)
        return Sql(text, span, parameters)


def shown(token: Token) -> str:
    """Return a token for a message: in double quotes, on one line, cut when long."""
    text = " ".join(token.text.split())
    text = text if len(text) <= 40 else text[:37] + "..."
    return text if token.kind in (Kind.STRING, Kind.QUOTED) else f'"{text}"'


def _span(place: Token | Span) -> Span:
    return place.span if isinstance(place, Token) else place

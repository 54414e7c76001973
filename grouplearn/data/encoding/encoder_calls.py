"""How encoders are called in FEATURES: ``name(column, ..., option := value)``, and the options that they declare."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

#: A value of an encoder's option.
OptionValue = float | int | str | bool


@dataclass(frozen=True, slots=True)
class EncoderOption:
    """An option of an encoder's call: a ``number``, a ``whole`` number, a ``text``, a ``truth`` value, or ``texts`` that make
    an item each; constant, so equal in all rows.

    - ``doc``: what it means. ``default``: its value if it is not given; ``required``: it has to be.
    - ``low``, ``high``: the range of numbers. ``choices``: texts that are allowed, of a ``text`` no others.
    - ``words``: what a call needs that lacks it, such as "the number of buckets"; ``example``: a value in hints.
    - ``wrong``: how a message about a wrong value begins. ``hint`` follows one that is a column, ``{column}`` or ``{call}``.
    - ``sets``: the field of ``Item`` that holds it; options of one encoder alone are in ``Item.options``.
    """

    name: str
    kind: Literal["number", "whole", "text", "texts", "truth"]
    doc: str
    default: OptionValue | None = None
    required: bool = False
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    words: str = ""
    example: str = "1"
    wrong: str = ""
    hint: str = ""
    sets: Literal["impute", "scope", "buckets"] | None = None

    @property
    def begins(self) -> str:
        """The beginning of messages about its values."""
        return self.wrong or f"{self.name} must be"

    @property
    def allowed(self) -> str:
        """Its values in words."""
        if self.kind == "truth":
            return "true or false"
        texts = ", ".join(f"'{choice}'" for choice in self.choices)
        if self.kind == "text":
            first, _, last = texts.rpartition(", ")
            return f"{first} or {last}" if first else last or "a text"
        if self.kind == "texts":
            return f"one or a list of {texts}"
        number = "a whole number" if self.kind == "whole" else "a number"
        if self.low is not None and self.high is not None:
            number += f" from {self.low} to {self.high}"
        elif self.low is not None or self.high is not None:
            number += f" of at least {self.low}" if self.high is None else f" of at most {self.high}"
        return f"{texts} or {number}" if texts else number

    def checked(self, value: Any) -> OptionValue | tuple[str, ...]:
        """Return a value as the option's type, several texts as a tuple; raises ValueError for another or one not allowed."""
        if self.kind == "truth":
            if not isinstance(value, bool):
                raise ValueError(value)
            return value
        if self.kind == "texts":
            texts = tuple(value) if isinstance(value, list | tuple) else (value,)
            if not texts or not {*texts} <= {*self.choices}:
                raise ValueError(value)
            return texts
        if isinstance(value, str):
            if value not in self.choices if self.choices else self.kind != "text":
                raise ValueError(value)
            return value
        if self.kind == "text" or isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise ValueError(value)
        whole = self.kind == "whole"
        if not math.isfinite(value) or (whole and not isinstance(value, int)) or not self._is_within(float(value)):
            raise ValueError(value)
        return int(value) if whole else float(value)

    def read(self, text: str) -> OptionValue:
        """Return the value of an item that is stored as a text; raises ValueError as ``checked``."""
        value = self._read(text)
        if not isinstance(value, tuple):
            return value
        (one,) = value
        return one

    def _read(self, text: str) -> OptionValue | tuple[str, ...]:
        if self.kind == "truth":
            return self.checked({"true": True, "false": False}.get(text))
        if self.kind in ("text", "texts") or text in self.choices:
            return self.checked(text)
        return self.checked(int(text) if self.kind == "whole" else float(text))

    def _is_within(self, number: float) -> bool:
        return (self.low is None or number >= self.low) and (self.high is None or number <= self.high)


SCOPE = EncoderOption(
    "scope",
    "text",
    "whether it is fitted on the training rows of each group, or once on the training rows of all groups",
    default="group",
    choices=("group", "all"),
    sets="scope",
)


@dataclass(frozen=True, slots=True)
class EncoderCall:
    """A function in FEATURES that makes features of its columns, possibly fitted on training rows.

    ``options`` may follow the columns by name; ``unnamed`` are those that unnamed last arguments give, in order, the required
    ones first. Where one is missing, ``hint`` follows the error. Every ``together`` arguments form one item, and all of them,
    at least two, if it is None. ``within`` is
    the encoder whose calls may be nested. ``makes`` says in the reference which feature columns each form of the call makes.
    """

    name: str
    makes: Mapping[str, str]
    options: tuple[EncoderOption, ...] = (SCOPE,)
    unnamed: tuple[str, ...] = ()
    hint: str = ""
    together: int | None = 1
    within: str | None = None

    @property
    def needed(self) -> str:
        """The required options in words; empty for none."""
        return " and ".join(option.words or option.name for option in self.options if option.required)

    @property
    def example(self) -> str:
        """A call on a column ``x``."""
        values = [option.example for option in self.options if option.required]
        columns = ["x"] if self.together else ["x", "z"]
        return f"{self.name}({', '.join([*columns, *values])})"

    @property
    def last(self) -> tuple[EncoderOption, ...]:
        """The options that unnamed last arguments give."""
        return tuple(self.option(name) for name in self.unnamed)

    @property
    def own(self) -> tuple[EncoderOption, ...]:
        """The options in ``Item.options``."""
        return tuple(option for option in self.options if option.sets is None)

    @property
    def fewest(self) -> int:
        """The fewest columns of an item."""
        return self.together or 2

    def option(self, name: str) -> EncoderOption:
        """Return the option of that name; raises KeyError if there is none."""
        found = next((option for option in self.options if option.name == name), None)
        if found is None:
            raise KeyError(name)
        return found

    def stored(self, texts: Mapping[str, str]) -> tuple[tuple[str, OptionValue], ...]:
        """Return an item's own options from their texts in the catalog.

        Raises ValueError for one that the call does not have, a missing one, or a value that is not allowed.
        """
        if texts.keys() - {option.name for option in self.own}:
            raise ValueError(texts)
        given = [(option, texts[option.name]) if option.name in texts else (option, None) for option in self.own]
        values = [(option.name, option.default if text is None else option.read(text)) for option, text in given]
        if any(option.required and option.name not in texts for option in self.own):
            raise ValueError(texts)
        return tuple((name, value) for name, value in values if value is not None)

"""Why a group, or a trial, fails, in words for users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from grouplearn.data.memory import ran_out
from grouplearn.learners.contract.control import Diverged, Interrupted
from grouplearn.train.rows.used import GroupFailed

Made = TypeVar("Made")

#: Longest reason of a failure; longer texts of libraries are cut.
_REASON_LENGTH = 500


def reason_of(error: Exception, features: Sequence[str] = ()) -> str:
    """Return an exception as a reason for users; ``features`` are the names of the feature columns."""
    message = error.about(features) if isinstance(error, Diverged) else str(error)
    text = " ".join(message.split())[:_REASON_LENGTH]
    if ran_out(error):
        return "out of memory; hint: fewer feature columns (hash, ordinal), or fewer workers at a time"
    if isinstance(error, Diverged | ValueError):
        return text or type(error).__name__
    if isinstance(error, ArithmeticError):
        return f"numerical failure: {text or type(error).__name__}"
    return f"{type(error).__name__}: {text}"


def or_failed(made: Callable[[], Made]) -> Made | GroupFailed:
    """Return the result of ``made`` for a group, or the reason for users why it fails; raises Interrupted."""
    try:
        with np.errstate(all="ignore"):  # divergence shows in the numbers
            return made()
    except GroupFailed as error:
        return error
    except Interrupted:
        raise
    except Exception as error:
        return GroupFailed(reason_of(error))

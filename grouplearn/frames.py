"""Calls of DuckDB that see other variables than the caller's.

DuckDB looks for tables that it does not have among the variables of the calling frame. ``eval`` makes such a frame of any names.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any

_CALL = compile("__grouplearn_call__(*__grouplearn_args__, **__grouplearn_options__)", "<grouplearn>", "eval")


def call_among(
    variables: Mapping[str, Any],
    outer: dict[str, Any],
    function: Callable[..., Any],
    *arguments: Any,
    **options: Any,
) -> Any:
    """Call a DuckDB method in a frame with these local and global variables, and return what it returns.

    The variables are read only where DuckDB looks for a table among them.
    """
    own = {
        "__grouplearn_call__": function,
        "__grouplearn_args__": arguments,
        "__grouplearn_options__": options,
    }
    layers: list[Any] = [own, variables]
    return eval(_CALL, outer, ChainMap(*layers))  # noqa: S307, the expression is a constant

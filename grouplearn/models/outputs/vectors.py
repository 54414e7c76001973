"""How outputs read models that are vectors over the encoded features: in SQL to score rows, and in the views of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

#: In SQL: the list of a row's encoded features.
FEATURES = "__grouplearn_x"


@dataclass(frozen=True, slots=True)
class VectorView:
    """A view with a row per vector of a ``part`` of each group's best trial, or more.

    ``columns`` by name are SQL over the vector (``f.place``, ``f.vector``, ``f.value``), its group (``g.features``) and the
    model's vector ``mean``, if it has one (``o.value``). They follow the group, its level and the hyperparameters.
    """

    suffix: str
    comment: str
    part: str
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class VectorSql:
    """How SQL scores rows by the vectors of their groups (``grouplearn.factors``).

    - ``parts``: the parts whose vectors have places from 1 on; ``single``: those of one vector, at place 0.
    - ``given``: by name the columns that a row gets from its group, as SQL over ``v``, which has the list of the vectors of
      each part under the part's name, and with ``values`` also the list of their values, as ``<part>_values``.
    - ``place``: SQL of a place, over the row ``r``, if a row is scored by the vectors of one place alone. ``v`` then has
      these vectors, and their values as ``<part>_value``.
    - ``scored``: from a query of rows with these columns and ``FEATURES``, NaN where one is missing, the query that adds
      what ``Output.select`` reads.
    """

    parts: tuple[str, ...]
    given: Mapping[str, str]
    scored: Callable[[str], str]
    single: tuple[str, ...] = ()
    values: bool = False
    place: str = ""
    views: tuple[VectorView, ...] = field(default=())

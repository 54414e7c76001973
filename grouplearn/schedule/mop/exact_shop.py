"""Open shop as a mixed-integer program (Nakandala, Zhang and Kumar 2020, 5.1), solved by HiGHS."""

from __future__ import annotations

import itertools

import numpy as np
import scipy.optimize
import scipy.sparse

from grouplearn.schedule.mop.shop import OpenShop, Starts, Visit


def exact_starts(shop: OpenShop, work: float) -> Starts | None:
    """Return the starts of the shortest schedule found with this much ``work`` (see ``open_shop``), None if none was
    found."""
    found = _solved(shop, work)
    return None if found is None else _compact(shop, found)


def _solved(shop: OpenShop, work: float) -> Starts | None:
    """Return the solver's starts, which are in order but exact only to its tolerance.

    min C with X_b ≥ X_a + T_a - V z and X_a ≥ X_b + T_b - V (1 - z) for every two visits a, b of one unit (Y of the paper)
    or of one shard (Z), X ≥ 0, C ≥ X + T, and C at least the load of each unit and shard. V is an upper bound on the length
    of the schedule.
    """
    visits = sorted(shop.seconds)
    if not shop.longest:
        return dict.fromkeys(visits, 0.0)
    shop = OpenShop(
        {visit: seconds / shop.longest for visit, seconds in shop.seconds.items()}
    )  # for the solver's tolerances
    number = {visit: place for place, visit in enumerate(visits)}
    pairs = [*_pairs(shop.places_of, 0), *_pairs(shop.units_at, 1)]
    n, horizon = len(visits), _horizon(shop)
    seconds = np.array([shop.seconds[visit] for visit in visits])
    rows, least = _constraints([(number[a], number[b]) for a, b in pairs], seconds, horizon)
    binary = np.concatenate([np.zeros(n + 1), np.ones(len(pairs))])
    lower = np.concatenate([np.zeros(n), [shop.bound], np.zeros(len(pairs))])
    upper = np.concatenate([horizon - seconds, [horizon], np.ones(len(pairs))])
    cost = np.zeros(n + 1 + len(pairs))
    cost[n] = 1.0
    found = scipy.optimize.milp(
        cost,
        integrality=binary,
        bounds=scipy.optimize.Bounds(lower, np.maximum(lower, upper)),
        constraints=scipy.optimize.LinearConstraint(rows, lb=least),
        options={"node_limit": max(1, int(work / max(1, len(pairs)) ** 2))},
    )
    if found.x is None:
        return None
    return dict(zip(visits, found.x[:n].tolist(), strict=True))


def _pairs(by: dict[int, list[int]], side: int) -> list[tuple[Visit, Visit]]:
    """Return every two visits of one unit (side 0), or of one shard (side 1)."""
    return [
        ((key, a), (key, b)) if side == 0 else ((a, key), (b, key))
        for key, others in by.items()
        for a, b in itertools.combinations(others, 2)
    ]


def _horizon(shop: OpenShop) -> float:
    """Return the length of any dense schedule: L_max + (p - 1) T_max."""
    return max(shop.loads.values(), default=0.0) + max(0, len(shop.units_at) - 1) * shop.longest


def _constraints(
    pairs: list[tuple[int, int]], seconds: np.ndarray[tuple[int, ...], np.dtype[np.float64]], horizon: float
) -> tuple[scipy.sparse.csr_matrix, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """Return the matrix over (X, C, z) and the lower bounds of its rows."""
    n, m = len(seconds), len(pairs)
    first, second = (
        (np.array(each, dtype=int) for each in zip(*pairs, strict=True)) if pairs else (np.empty(0, int),) * 2
    )
    at, z = np.arange(m), n + 1 + np.arange(m)
    visit = np.arange(n)
    # Rows: X_b - X_a + V z ≥ T_a; X_a - X_b - V z ≥ T_b - V; C - X ≥ T.
    row = np.concatenate([at, at, at, m + at, m + at, m + at, 2 * m + visit, 2 * m + visit])
    column = np.concatenate([second, first, z, first, second, z, np.full(n, n), visit])
    value = np.concatenate(
        [
            np.ones(m),
            -np.ones(m),
            np.full(m, horizon),
            np.ones(m),
            -np.ones(m),
            np.full(m, -horizon),
            np.ones(n),
            -np.ones(n),
        ]
    )
    least = np.concatenate([seconds[first], seconds[second] - horizon, seconds])
    return scipy.sparse.csr_matrix((value, (row, column)), shape=(2 * m + n, n + 1 + m)), least


def _compact(shop: OpenShop, starts: Starts) -> Starts:
    """Return the earliest starts in the same order as ``starts``."""
    unit_free: dict[int, float] = {}
    place_free: dict[int, float] = {}
    compact: Starts = {}
    for unit, place in sorted(starts, key=lambda visit: (starts[visit], visit)):
        start = max(unit_free.get(unit, 0.0), place_free.get(place, 0.0))
        compact[unit, place] = start
        unit_free[unit] = place_free[place] = start + shop.seconds[unit, place]
    return compact

"""Open shop by vector rearrangement (Fiala 1983; Woeginger 2018; Nakandala, Zhang and Kumar 2020, 5.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.optimize

from grouplearn.schedule.mop.shop import OpenShop, Starts

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Arrangement:
    """Units in order, by id, and their ``spans`` (units, shards) in seconds; None is a dummy unit."""

    units: tuple[int | None, ...]
    spans: FloatArray

    @property
    def order(self) -> list[int]:
        """The real units, in order."""
        return [unit for unit in self.units if unit is not None]


def rearranged(shop: OpenShop) -> Arrangement:
    """Return the units in an order in which the loads of all p shards stay within (p - 1) longest visits of each other.

    Unit i is the vector (T_i1 - T_i2, ..., T_i(p-1) - T_ip), with dummy units that fill every shard up to L_max, so that
    all vectors sum to 0; they are ordered by the Steinitz lemma.
    """
    units, places = sorted(shop.places_of), sorted(shop.units_at)
    spans = np.array([[shop.seconds.get((unit, place), 0.0) for place in places] for unit in units])
    spans = spans.reshape(len(units), len(places))
    padded = np.concatenate([spans, _padding(spans)]) if units else spans
    order = _steinitz(padded[:, :-1] - padded[:, 1:], shop.longest)
    named = tuple(units[number] if number < len(units) else None for number in order)
    return Arrangement(named, padded[order])


def staggered(shop: OpenShop, arranged: Arrangement) -> Starts | None:
    """Return the schedule of length L_max in which shard k begins k (p + 1) T_max later in the order, and wraps around.

    Loads are within (p - 1) T_max of each other, so a unit has left one shard when it comes to the next. None if L_max <
    (p² + p - 1) T_max, where it might return to the first one too early.
    """
    places, longest = sorted(shop.units_at), shop.longest
    p, load = len(places), max(shop.loads.values(), default=0.0)
    if load < (p * p + p - 1) * longest or not longest:
        return None
    starts: Starts = {}
    for number, place in enumerate(places):
        spans = arranged.spans[:, number]
        begins = np.cumsum(spans) - spans
        late = number * (p + 1) * longest
        first = int(np.searchsorted(begins, load - late)) % len(spans) if number else 0
        times = np.roll(np.cumsum(np.roll(spans, -first)) - np.roll(spans, -first), first)
        for unit, time in zip(arranged.units, times.tolist(), strict=True):
            if unit is not None and (unit, place) in shop.seconds:
                starts[unit, place] = time
    return starts if shop.is_schedule(starts) else None


def _padding(spans: FloatArray) -> FloatArray:
    """Return dummy rows, none with a span above the longest, that make all column sums equal."""
    loads, longest = spans.sum(axis=0), float(spans.max())
    lacking = loads.max() - loads
    count = int(np.ceil(lacking.max() / longest)) if longest else 0
    padding: FloatArray = np.clip(lacking[None, :] - np.arange(count)[:, None] * longest, 0.0, longest)
    return padding


def _steinitz(vectors: FloatArray, longest: float) -> list[int]:
    """Return an order of n vectors of d dimensions that sum to 0, whose partial sums have norm at most d max |v|.

    Grinberg and Sevast'yanov 1980: for k remaining vectors, a vertex of {Σ λ v = 0, Σ λ = k - 1 - d, 0 ≤ λ ≤ 1} has a λ of
    0, as at most d + 1 are fractions; that vector comes last. The last d may come in any order.
    """
    d = vectors.shape[1]
    scaled = vectors / longest if longest else vectors
    left, behind = list(range(len(vectors))), []
    while len(left) > d + 1:
        equal = np.vstack([scaled[left].T, np.ones(len(left))])
        total = np.concatenate([np.zeros(d), [len(left) - 1 - d]])
        found = scipy.optimize.linprog(
            np.zeros(len(left)), A_eq=equal, b_eq=total, bounds=(0, 1), method="highs-ds", options={"presolve": False}
        )
        weights = found.x if found.x is not None else np.ones(len(left))
        behind.append(left.pop(int(np.argmin(weights))))
    return [*left, *reversed(behind)]

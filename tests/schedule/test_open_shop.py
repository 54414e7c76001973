"""Open-shop schedules: legal, within their bounds, and the exact one against all orders of small instances."""

import itertools

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from grouplearn.schedule.mop import open_shop
from grouplearn.schedule.mop.exact_shop import exact_starts
from grouplearn.schedule.mop.open_shop import dense_starts, planned, starts_of
from grouplearn.schedule.mop.shop import OpenShop
from grouplearn.schedule.mop.vector_shop import rearranged, staggered


@st.composite
def shops(draw: st.DrawFn, units: int = 12, places: int = 5) -> OpenShop:
    span = st.one_of(st.none(), st.floats(0.0, 9.0), st.sampled_from([1.0, 2.0]))
    shape = range(draw(st.integers(1, units))), range(draw(st.integers(1, places)))
    drawn = {visit: draw(span) for visit in itertools.product(*shape)}
    return OpenShop({visit: seconds for visit, seconds in drawn.items() if seconds is not None})


@settings(max_examples=75, deadline=None)
@given(shop=shops())
def test_a_dense_schedule_is_legal_and_within_its_bound(shop: OpenShop) -> None:
    starts = starts_of("vector", shop)
    assert shop.is_schedule(starts)
    slack = max(0, len(shop.units_at) - 1) * shop.longest
    assert shop.bound - 1e-9 <= shop.makespan(starts) <= max(shop.loads.values(), default=0.0) + slack + 1e-9


@settings(max_examples=25, deadline=None)
@given(shop=shops())
def test_rearranged_loads_stay_close_to_each_other(shop: OpenShop) -> None:
    arranged = rearranged(shop)
    assert sorted(arranged.order) == sorted(shop.places_of)
    loads = np.cumsum(arranged.spans, axis=0)
    if loads.size:
        p = loads.shape[1]
        apart = np.abs(np.diff(loads, axis=1)).max(initial=0.0)
        assert apart <= (p - 1) * shop.longest + 1e-6
        assert np.allclose(loads[-1], loads[-1][0])


@pytest.mark.parametrize(("units", "places"), [(40, 3), (60, 4), (90, 6)])
def test_the_staggered_schedule_is_optimal_where_loads_are_large(units: int, places: int) -> None:
    spans = np.random.default_rng(units).uniform(1, 3, (units, places))
    shop = OpenShop({visit: float(span) for visit, span in np.ndenumerate(spans)})
    assert max(shop.loads.values()) >= (places**2 + places - 1) * shop.longest
    starts = staggered(shop, rearranged(shop))
    assert starts is not None
    assert shop.is_schedule(starts)
    assert shop.makespan(starts) == pytest.approx(max(shop.loads.values()))


def test_no_staggered_schedule_where_loads_are_small() -> None:
    shop = OpenShop(dict.fromkeys(itertools.product(range(10), range(3)), 1.0))
    assert staggered(shop, rearranged(shop)) is None, "10 < 3 * 3 + 3 - 1"


@settings(max_examples=15, deadline=None)
@given(shop=shops(units=3, places=2))
def test_the_exact_schedule_is_the_shortest_of_all_orders(shop: OpenShop) -> None:
    best = min((earliest(shop, order) for order in itertools.permutations(shop.seconds)), default=0.0)
    starts = starts_of("exact", shop)
    assert shop.is_schedule(starts)
    assert shop.makespan(starts) == pytest.approx(best, abs=1e-3 * shop.longest)


def earliest(shop: OpenShop, order: tuple[tuple[int, int], ...]) -> float:
    free: dict[tuple[str, int], float] = {}
    for unit, place in order:
        end = max(free.get(("unit", unit), 0.0), free.get(("place", place), 0.0)) + shop.seconds[unit, place]
        free["unit", unit] = free["place", place] = end
    return max(free.values(), default=0.0)


def test_the_example_of_the_paper() -> None:
    """An instance with the makespans of Figure 5: 7 units of time, where whole tasks take 9 at best (6 + 3, 6, 3 + 3)."""
    times = {0: 2.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 2.0}  # seconds of a whole epoch are three times that
    shop = OpenShop({(unit, place): seconds for unit, seconds in times.items() for place in range(3)})
    starts = exact_starts(shop, 1e9)
    assert starts is not None
    assert shop.makespan(starts) == pytest.approx(7.0)
    assert shop.makespan(dense_starts(shop, sorted(times))) <= 7.0 + 2 * 2.0


def test_equal_questions_are_answered_once_and_in_the_same_order() -> None:
    seconds = {visit: 1.0 + visit[0] for visit in itertools.product(range(4), range(3))}
    assert planned("vector", seconds) is planned("vector", dict(seconds))
    assert planned("exact", {}) == ()


def test_no_clock_decides_an_exact_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, float]] = []
    milp = scipy.optimize.milp
    monkeypatch.setattr(
        scipy.optimize, "milp", lambda *given, **named: asked.append(dict(named["options"])) or milp(*given, **named)
    )
    shop = OpenShop({visit: 1.0 + sum(visit) % 3 for visit in itertools.product(range(5), range(4))})
    starts_of("exact", shop)
    assert asked == [{"node_limit": int(open_shop.EXACT_WORK / 70**2)}]
    assert starts_of("exact", shop, 1e5) == starts_of("exact", shop, 1e5)

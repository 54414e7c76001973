"""The recurrent network for series: its distributions, its windows, and forecasts of simulated series."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import distributions  # noqa: E402

from grouplearn.data.frequency import Frequency  # noqa: E402
from grouplearn.learners.contract.control import Diverged, Interrupted  # noqa: E402
from grouplearn.learners.series.batch import SeriesBatch  # noqa: E402
from grouplearn.learners.series.deep.forecasting import SampledForecasts, forecasts  # noqa: E402
from grouplearn.learners.series.deep.likelihoods import LIKELIHOODS  # noqa: E402
from grouplearn.learners.series.deep.settings import Settings  # noqa: E402
from grouplearn.learners.series.deep.time_features import calendar_features, lags  # noqa: E402
from grouplearn.learners.series.deep.training import check_device, trained  # noqa: E402
from grouplearn.learners.series.deep.windows import PanelTensors  # noqa: E402
from grouplearn.learners.series.panel import Panel  # noqa: E402
from grouplearn.models.metrics.forecasts import GRID  # noqa: E402


def panel(series: list[np.ndarray], horizon: int, features: list[np.ndarray] | None = None) -> Panel:
    """Return series that start at steps 0, 1, 2 ..., each maybe with a feature of its steps and of the horizon."""
    start = np.concatenate([[0], np.cumsum([len(each) for each in series])])
    batch = SeriesBatch(np.concatenate(series), start, np.arange(len(series)))
    width = 0 if features is None else 1
    past = np.empty((batch.y.size, width))
    ahead = np.empty((len(series), horizon, width))
    for number, each in enumerate(features or ()):
        past[start[number] : start[number + 1], 0], ahead[number, :, 0] = each[:-horizon], each[-horizon:]
    return Panel(batch, past, ahead)


def learned(given: Panel, frequency: Frequency | None = None, **settings: object) -> SampledForecasts:
    """Return the forecasts of a small network."""
    small = {"hidden_units": 16, "layers": 1, "dropout": 0.0, "learning_rate": 0.01, "batches_per_epoch": 20}
    own = Settings(**{**small, "horizon": given.ahead.shape[1], **settings})  # type: ignore[arg-type]
    tensors = PanelTensors(given, frequency or Frequency("number"), own)
    return forecasts(trained(tensors, lambda: False), tensors, lambda: False)


def wql(y: np.ndarray, quantiles: np.ndarray) -> float:
    """Return the mean loss of the quantiles 0.1 to 0.9, divided by the mean absolute value."""
    losses = [
        np.maximum(q * (y - at), (q - 1) * (y - at))
        for q in np.arange(1, 10) / 10
        for at in [quantiles[..., int(np.argmin(np.abs(np.array(GRID) - q)))]]
    ]
    return float(2 * np.mean(losses) / np.abs(y).mean())


def test_densities_are_those_of_torch() -> None:
    raw = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
    scale = torch.linspace(0.1, 40, 50)
    y = torch.arange(50.0)

    def density(name: str) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        parameters = LIKELIHOODS[name].parameters(raw, scale)
        return parameters, LIKELIHOODS[name].log_density(y.clamp(max=1) if name == "bernoulli" else y, *parameters)

    (mean, deviation), found = density("gaussian")
    torch.testing.assert_close(found, distributions.Normal(mean, deviation).log_prob(y))
    (mean, spread, freedom), found = density("student_t")
    torch.testing.assert_close(found, distributions.StudentT(freedom, mean, spread).log_prob(y))
    (mean, alpha), found = density("negative_binomial")
    theirs = distributions.NegativeBinomial(1 / alpha, alpha * mean / (1 + alpha * mean))
    torch.testing.assert_close(found, theirs.log_prob(y.double()))
    torch.testing.assert_close(theirs.variance, mean + alpha * mean**2)
    softplus = torch.log1p(raw.double().exp())
    torch.testing.assert_close(mean, scale.double() * softplus[:, 0], rtol=0, atol=1e-4)
    torch.testing.assert_close(alpha, softplus[:, 1] / scale.double().sqrt(), rtol=0, atol=1e-5)
    (logit,), found = density("bernoulli")
    torch.testing.assert_close(found, distributions.Bernoulli(logits=logit).log_prob(y.clamp(max=1)))


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_samples_have_the_mean_and_the_density(name: str) -> None:
    likelihood = LIKELIHOODS[name]
    parameters = likelihood.parameters(torch.tensor([[0.7, 0.3, 4.0]]), torch.tensor([5.0]))
    each = [np.repeat(one.double().numpy(), 100_000) for one in parameters]
    drawn = likelihood.sample(np.random.default_rng(1), *each)
    assert drawn.mean() == pytest.approx(likelihood.mean(*parameters).item(), abs=4 * drawn.std() / math.sqrt(1e5))
    # The entropy is the mean of -log p, and least for the distribution that drew the sample.
    y = torch.from_numpy(drawn)
    own = likelihood.log_density(y, *parameters).mean()
    for step in (-0.1, 0.1):
        other = likelihood.parameters(torch.tensor([[0.7 + step, 0.3 + step, 4.0]]), torch.tensor([5.0]))
        assert likelihood.log_density(y, *other).mean() < own


def test_labels_that_a_distribution_does_not_have_are_named() -> None:
    assert LIKELIHOODS["negative_binomial"].label_error(np.array([0.0, 3.0])) is None
    assert "counts" in str(LIKELIHOODS["negative_binomial"].label_error(np.array([0.0, 1.5])))
    assert "0 and 1" in str(LIKELIHOODS["bernoulli"].label_error(np.array([0.0, 2.0])))


def test_a_step_has_its_places_in_the_calendar() -> None:
    months = calendar_features(np.array([0, 5, 11, 12]), Frequency("month"))
    np.testing.assert_allclose(months[:, 0], [-0.5, 5 / 11 - 0.5, 0.5, -0.5])
    # 2024-02-29 is a Thursday; 2024-12-31 is a Tuesday and the 366th day of its year.
    days = calendar_features(np.array([19782, 20088]), Frequency("day"))
    np.testing.assert_allclose(days, [[3 / 6 - 0.5, 28 / 30 - 0.5, 59 / 365 - 0.5], [1 / 6 - 0.5, 0.5, 0.5]])
    hour = 3_600_000_000
    hours = calendar_features(np.array([23, -1]), Frequency("microsecond", hour))
    np.testing.assert_allclose(hours[:, 0], [0.5, 0.5])
    np.testing.assert_allclose(hours[:, 1], [3 / 6 - 0.5, 2 / 6 - 0.5])
    # Friday 1970-01-09 and the Monday after it.
    np.testing.assert_allclose(
        calendar_features(np.array([4, 5]), Frequency("business_day"))[:, 0], [4 / 6 - 0.5, -0.5]
    )
    assert calendar_features(np.arange(3), Frequency("number")).shape == (3, 0)


def test_hours_are_those_of_the_clock_of_the_time_zone() -> None:
    """Before and after clocks are put back in Berlin, at 2024-10-27 01:00 UTC."""
    change, hour = 480_553, 3_600_000_000
    found = calendar_features(
        np.array([change - 1, change, change + 22]), Frequency("microsecond", hour, zone="Europe/Berlin")
    )
    assert np.allclose((found[:, 0] + 0.5) * 23, [2, 2, 0])
    assert np.allclose((found[:, 2] + 0.5) * 30, [26, 26, 27])
    days = calendar_features(np.array([change * hour]), Frequency("microsecond", 24 * hour, zone="Europe/Berlin"))
    assert np.array_equal(days, calendar_features(np.array([change * hour]), Frequency("microsecond", 24 * hour)))


def test_a_network_sees_the_last_steps_and_earlier_seasons() -> None:
    assert lags(Frequency("month"), 12, 400) == (1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 23, 24, 25, 35, 36, 37)
    assert lags(Frequency("number"), 1, 5) == (1, 2, 3, 4, 5)
    assert lags(Frequency("month", 3), 4, 400) == (*range(1, 10), 11, 12, 13)


def test_windows_are_cut_as_they_are_described() -> None:
    y = [np.array([2.0, 4, np.nan, 6, 8, 10]), np.array([-1.0, 3]), np.zeros(9)]
    horizon, context = 3, 2
    x = np.arange(17 + 3 * horizon, dtype=float)
    cuts = [6 + horizon, 8 + 2 * horizon]
    given = panel(y, horizon, np.split(x, cuts))
    tensors = PanelTensors(given, Frequency("number"), Settings(horizon=horizon, context=context))
    scaled = (x - x.mean()) / x.std()
    begins = [0, *cuts]
    # The third series is all zeros: its size is the mean absolute value of all.
    sizes = [6.0, 2.0, 34 / 16]
    for number, split in ((0, 1), (0, 3), (0, 6), (1, 1), (1, 2), (2, 5)):
        window = tensors.windows(torch.tensor([number]), torch.tensor([split]))

        def value(step: int, own: np.ndarray = y[number]) -> tuple[float, bool]:
            known = 0 <= step < len(own) and np.isfinite(own[step])
            return (own[step], True) if known else (0.0, False)

        past = [value(step) for step in range(split - context, split)]
        mean = sum(abs(each) for each, _ in past) / max(1, sum(known for _, known in past))
        scale = max(mean, sizes[number] / 10)
        assert window.scale.item() == pytest.approx(scale)
        for place, step in enumerate(range(split - context, split + horizon)):
            assert (window.target[0, place].item(), window.known[0, place].item()) == value(step)
            inside = min(max(step, 0), len(y[number]) + horizon - 1)
            expected = [
                *(value(step - lag)[0] / scale for lag in tensors.lags),
                float(value(step - 1)[1]),
                scaled[begins[number] + inside],
            ]
            assert window.inputs[0, place].tolist() == pytest.approx(expected, abs=1e-5)


def test_unknown_features_are_marked() -> None:
    given = panel([np.ones(3)], 2, [np.array([1.0, np.nan, 3, 5, np.nan])])
    tensors = PanelTensors(given, Frequency("number"), Settings(horizon=2, context=2))
    root = math.sqrt(1.5)
    np.testing.assert_allclose(tensors.features, [[-root, 0], [0, 1], [0, 0], [root, 0], [0, 1]], atol=1e-6)


def test_the_deviation_of_an_autoregression_grows_as_it_should() -> None:
    random, share, horizon = np.random.default_rng(2), 0.8, 6
    noise = random.normal(size=(30, 120))
    y = np.zeros((30, 120))
    for t in range(1, 120):
        y[:, t] = share * y[:, t - 1] + noise[:, t]
    found = learned(panel(list(y), horizon), context=10, likelihood="gaussian", epochs=12, n_samples=200)
    ahead = np.arange(1, horizon + 1)
    exact = np.sqrt((1 - share ** (2 * ahead)) / (1 - share**2))
    np.testing.assert_allclose(found.deviation.mean(0), exact, rtol=0.15)
    mean = y[:, -1:] * share**ahead
    assert np.sqrt(np.mean((found.mean - mean) ** 2)) < 0.55
    # One step ahead the error is the noise.
    assert np.nanstd((found.fitted.reshape(30, -1) - y)[:, 20:]) == pytest.approx(1, rel=0.1)


def seasonal(horizon: int) -> tuple[list[np.ndarray], np.ndarray, list[np.ndarray]]:
    """Return series of unequal length with missing values, what follows, and a feature that drives them."""
    random = np.random.default_rng(4)
    past, future, drivers = [], [], []
    for number in range(30):
        n = int(random.integers(30, 90))
        t = np.arange(n + horizon) + number
        driver = random.normal(size=n + horizon)
        size = np.exp(random.normal(2, 1.5))
        y = size * (5 + 2 * np.sin(2 * np.pi * t / 12) + driver + 0.5 * random.standard_t(5, size=n + horizon))
        y[:n][random.uniform(size=n) < 0.1] = np.nan
        past.append(y[:n])
        future.append(y[n:])
        drivers.append(driver)
    return past, np.array(future), drivers


def test_seasonal_series_are_forecast_better_than_by_the_season_before() -> None:
    horizon = 12
    past, future, driver = seasonal(horizon)
    given, months = panel(past, horizon, driver), Frequency("month")
    settings = {"context": horizon, "season": 12, "epochs": 10, "n_samples": 100, "seed": 3}
    found = learned(given, months, **settings)
    naive = np.array([np.where(np.isfinite(each[-12:]), each[-12:], np.nanmean(each)) for each in past])
    of_naive = np.abs(future - naive).sum() / np.abs(future).sum()
    assert wql(future, found.quantiles) < 0.6 * of_naive
    assert (np.diff(found.quantiles, axis=2) >= 0).all()
    low, high = found.quantiles[..., GRID.index(0.05)], found.quantiles[..., GRID.index(0.95)]
    assert 0.65 < ((low <= future) & (future <= high)).mean() < 0.98
    assert np.isnan(found.fitted[given.series.start[:-1]]).all()
    assert np.isfinite(np.delete(found.fitted, given.series.start[:-1])).all()
    # The driver counts: without it, forecasts are worse.
    without = learned(panel(past, horizon), months, **settings)
    assert wql(future, found.quantiles) < 0.9 * wql(future, without.quantiles)


def test_missing_values_are_not_learned() -> None:
    random = np.random.default_rng(6)
    y = 10 + random.normal(size=(8, 60))
    y[:, 1:-1][random.uniform(size=(8, 58)) < 0.5] = np.nan
    found = learned(panel(list(y), 3), context=8, likelihood="gaussian", epochs=5, n_samples=100)
    assert found.mean.mean() == pytest.approx(10, abs=1)
    assert np.nanmean(found.fitted) == pytest.approx(10, abs=1)


def test_counts_and_states_are_sampled_as_such() -> None:
    random = np.random.default_rng(5)
    rates = np.array([0.3, 2.0, 12.0])
    counts = [random.negative_binomial(2, 2 / (2 + rate), 150).astype(float) for rate in rates]
    settings = {"context": 12, "epochs": 10, "n_samples": 400}
    found = learned(panel(counts, 4), likelihood="negative_binomial", **settings)
    np.testing.assert_allclose(found.mean.mean(1), rates, rtol=0.3, atol=0.3)
    np.testing.assert_allclose(found.deviation.mean(1), np.sqrt(rates + rates**2 / 2), rtol=0.4, atol=0.3)
    middle = found.quantiles[..., 10:90:10]
    assert (middle >= 0).all()
    assert np.mean(middle == np.floor(middle)) > 0.9
    # The states repeat 1, 1, 0.
    states = [np.tile([1.0, 1.0, 0.0], 30)[shift:] for shift in range(3)]
    found = learned(panel(states, 4), likelihood="bernoulli", **settings)
    np.testing.assert_allclose(found.mean, [[1, 1, 0, 1]] * 3, atol=0.1)


def test_a_seed_decides_all_bits_and_leaves_torch_alone() -> None:
    past, _, driver = seasonal(3)
    given = panel(past, 3, driver)
    settings = {"context": 5, "layers": 2, "dropout": 0.2, "epochs": 2, "batches_per_epoch": 3, "n_samples": 20}
    before = torch.get_rng_state()
    one, same, other = (learned(given, Frequency("day"), seed=seed, **settings) for seed in (7, 7, 8))
    assert torch.equal(before, torch.get_rng_state())
    for name in ("fitted", "mean", "deviation", "quantiles"):
        np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
    assert not np.array_equal(one.mean, other.mean)


def test_series_of_one_or_two_values_and_of_zeros_have_forecasts() -> None:
    given = panel([np.array([3.0]), np.array([1.0, 2.0]), np.zeros(8), np.full(20, 7.0)], 2)
    found = learned(given, context=4, epochs=2, n_samples=20)
    assert np.isfinite(found.quantiles).all()
    alone = learned(panel([np.array([3.0])], 2), context=4, epochs=1, n_samples=20)
    assert np.isfinite(alone.mean).all()


def test_training_stops_between_batches() -> None:
    calls = iter([False, False, True])
    tensors = PanelTensors(panel([np.arange(20.0)], 2), Frequency("number"), Settings(horizon=2, context=4))
    with pytest.raises(Interrupted):
        trained(tensors, lambda: next(calls))
    with pytest.raises(Diverged, match="torch has no device 'cuda:99' here"):
        check_device("cuda:99")

"""All learners of series."""

from grouplearn.learners.series.arima import Arima
from grouplearn.learners.series.croston import Croston
from grouplearn.learners.series.exponential_smoothing import ExponentialSmoothing
from grouplearn.learners.series.seasonal_naive import SeasonalNaive
from grouplearn.learners.series.series_learner import SeriesLearner
from grouplearn.learners.series.theta import Theta

LEARNERS: tuple[SeriesLearner, ...] = (SeasonalNaive(), ExponentialSmoothing(), Theta(), Croston(), Arima())

"""The macros of series, as SQL over what is stored: the steps to come, those of the past, and anomalies."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from grouplearn.data.frequency import Frequency
from grouplearn.models.metrics.forecasts import COMPONENTS, GRID, UNKNOWN, WIDTH
from grouplearn.models.metrics.metric import TARGET
from grouplearn.models.outputs.output import PLACE, SOURCE, Endpoint, StoredModel
from grouplearn.sqltext import identifier

#: Wichura's AS 241: deviations of the normal distribution at a probability q, to 16 digits. Coefficients of the numerators and
#: denominators of three quotients of polynomials, the highest power first: near the middle, in the tails, far in the tails.
_MIDDLE = (
    "2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457, 13731.693765509461125, "
    "1971.5909503065514427, 133.14166789178437745, 3.387132872796366608",
    "5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867, 5394.1960214247511077, "
    "687.1870074920579083, 42.313330701600911252, 1.0",
)
_TAIL = (
    "7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258, "
    "3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734",
    "1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459, "
    "0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0",
)
_FAR = (
    "2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093, "
    "0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772",
    "2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4, "
    "0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0",
)


def quantile_sql(q: str) -> str:
    """Return the SQL of the deviations from the mean at which a normal distribution has the probability ``q``, a name."""
    near = f"list_transform([0.180625 - ({q} - 0.5) ** 2], lambda r: ({q} - 0.5) * {_quotient(_MIDDLE, 'r')})[1]"
    root = f"[sqrt(-ln(least({q}, 1 - {q})))]"
    far = f"CASE WHEN r <= 5 THEN {_quotient(_TAIL, '(r - 1.6)')} ELSE {_quotient(_FAR, '(r - 5)')} END"
    return f"CASE WHEN abs({q} - 0.5) <= 0.425 THEN {near} ELSE sign({q} - 0.5) * list_transform({root}, lambda r: {far})[1] END"


def _quotient(polynomials: tuple[str, str], x: str) -> str:
    above, below = (_polynomial(each.split(", "), x) for each in polynomials)
    return f"({above} / {below})"


def _polynomial(coefficients: list[str], x: str) -> str:
    """Return a polynomial by Horner's rule."""
    found = f"{coefficients[0]}::DOUBLE"
    for each in coefficients[1:]:
        found = f"({found} * {x} + {each})"
    return found


def _interpolated(q: str) -> str:
    """Return the SQL of the quantile of a probability ``q``, between the ``sampled`` ones of the step ``ahead``."""
    near, count = "0.005", len(GRID)
    place = (
        f"CASE WHEN {q} < 0.01 THEN greatest(1 + ({q} - {near}) / {near}, 1)"
        f" WHEN {q} > 0.99 THEN least({count - 1} + ({q} - 0.99) / {near}, {count}) ELSE 1 + 100 * {q} END"
    )
    begin = f"{count} * (ahead - 1)"
    low, high = (f"sampled[{begin} + CAST({end}(r) AS BIGINT)]" for end in ("floor", "ceil"))
    return f"list_transform([{place}], lambda r: {low} + (r - floor(r)) * ({high} - {low}))[1]"


def at_least_zero(quantile: str, mean: str) -> str:
    """Return the SQL of a quantile of demand, which is not below 0 unless its mean is."""
    return f"CASE WHEN {quantile} < least({mean}, 0) THEN least({mean}, 0) ELSE {quantile} END"


def _interval(*, sampled: bool, demand: bool) -> tuple[str, str]:
    """Return the SQL of the ends of the interval at the step ``ahead``, over the columns of a series and ``width``."""
    if sampled:
        return _interpolated("(1 - width)"), _interpolated("width")
    lower = f"{_MEAN} - width * {_DEVIATION}"
    return at_least_zero(lower, _MEAN) if demand else lower, f"{_MEAN} + width * {_DEVIATION}"


def steps_ahead_sql(definition: Any, relation: str, *, sampled: bool = False, demand: bool = False) -> str:
    """Return the SELECT of ``number`` and the list of the steps after the end of each series of a model, a row of a relation.

    It has ``number``, the step ``last`` of the end, the ``level`` of intervals, and the vectors ``mean``, ``deviation`` and, if
    ``sampled``, those of quantiles under that name.
    """
    time = definition.items[0]
    moment = Frequency.of(time.item.options).time("last + ahead", time.type)
    lower, upper = _interval(sampled=sampled, demand=demand)
    step = (
        f"{{'step': CAST(ahead AS INTEGER), 'time': CAST({moment} AS VARCHAR), 'prediction': {_MEAN},"
        f" 'lower': {lower}, 'upper': {upper}}}"
    )
    asked = f"SELECT *, (1 + {checked_level('level')}) / 2 AS q FROM {relation}"
    series = f"SELECT *, {'q' if sampled else quantile_sql('q')} AS width FROM ({asked})"
    rows = f"SELECT *, unnest(range(1, len(mean) + 1)) AS ahead FROM ({series})"
    return f"SELECT number, list({step} ORDER BY ahead ASC) AS steps FROM ({rows}) GROUP BY number ORDER BY number ASC"


def forecast_sql(
    model: StoredModel, predicted: str, *, sampled: bool = False, demand: bool = False, goes_on: bool = False
) -> str:
    """Return the SELECT of the steps after the end of each series: keys, step, time, forecast, and the ends of its interval.

    Parameters: ``horizon`` is the number of steps, all that are stored by default; ``level`` the probability of the interval;
    ``quantiles`` are probabilities, whose quantiles become a column of that name. They are those that the model has ``sampled``,
    or of a normal distribution, of ``demand`` at least 0. ``goes_on``: the function ``forecast`` has more steps.
    """
    del predicted
    time = model.definition.items[0]
    moment = Frequency.of(time.item.options).time("last + ahead", time.type)
    columns = [("mean", "vector", "mean"), ("mean", "value", "last"), ("deviation", "vector", "deviation")]
    columns += [("quantiles", "vector", "sampled")] if sampled else []
    parts = ", ".join(f"any_value({column}) FILTER (part = '{part}') AS {name}" for part, column, name in columns)
    series = f"SELECT group_id, place, {parts} FROM {model.table('factors')} GROUP BY group_id, place"
    asked = (
        f"SELECT {'q' if sampled else quantile_sql('q')} AS width, coalesce({model.reachable}, {_STEPS}) AS steps,"
        f" {_WANTED} AS wanted FROM (SELECT (1 + {checked_level('level')}) / 2 AS q, {_GIVEN})"
    )
    further = " || ' stores more, and forecast(model, row, ' || steps || ') goes on from these'" if goes_on else ""
    stored = "'the model has forecasts of ' || len(mean) || ' steps: TRAIN ... WITH (horizon = ' || steps || ')'"
    beyond = f"error({stored}{further})"
    steps = f"CASE WHEN steps > len(mean) THEN CAST({beyond} AS BIGINT) ELSE coalesce(steps, len(mean)) END"
    rows = (
        f"SELECT *, unnest(range(1, {steps} + 1)) AS ahead FROM ({asked}) AS a LEFT JOIN (({_groups(model)}) AS g JOIN"
        f" ({series}) AS s ON s.group_id = g.id) ON true WHERE id IS NOT NULL"
    )
    lower, upper = _interval(sampled=sampled, demand=demand)
    asked_for = _interpolated("q") if sampled else f"{_MEAN} + {_DEVIATION} * {quantile_sql('q')}"
    if demand:
        asked_for = at_least_zero(asked_for, _MEAN)
    selected = [
        *_keys(model),
        "CAST(ahead AS INTEGER) AS step",
        f"{moment} AS {identifier(time.item.name)}",
        f"{_MEAN} AS prediction",
        f"{lower} AS lower",
        f"{upper} AS upper",
        f"list_transform(wanted, lambda q: {asked_for}) AS __grouplearn_quantiles",
    ]
    every = f"SELECT {', '.join(selected)} FROM ({rows}) AS r ORDER BY r.id ASC, r.place ASC, r.ahead ASC"
    # A key may be called quantiles, too.
    asked = f"SELECT COLUMNS(lambda c: c <> '__grouplearn_quantiles' OR quantiles IS NOT NULL) FROM ({every})"
    return f"SELECT COLUMNS('(?s)^(?:__grouplearn_)?(.*)$') AS '\\1' FROM ({asked})"


def fitted_sql(model: StoredModel, predicted: str) -> str:
    """Return the SELECT of the forecast of each step of the past, made one step before: keys, time, ``prediction``."""
    del predicted
    time = model.definition.items[0]
    moment = Frequency.of(time.item.options).time("value + ahead", time.type)
    fitted = f"{model.table('factors')} AND part = 'fitted'"
    steps = f"SELECT group_id, place, value, vector, unnest(range(len(vector))) AS ahead FROM {fitted}"
    columns = [
        *_keys(model),
        f"{moment} AS {identifier(time.item.name)}",
        "vector[ahead + 1] AS prediction",
    ]
    rows = f"({steps}) AS s JOIN ({_groups(model)}) AS g ON g.id = s.group_id"
    return f"SELECT {', '.join(columns)} FROM {rows} ORDER BY g.id ASC, s.place ASC, s.ahead ASC"


def components_sql(model: StoredModel, predicted: str) -> str:
    """Return the SELECT of what the forecast of each step of the past is made of: keys, time, ``COMPONENTS``."""
    del predicted
    time = model.definition.items[0]
    moment = Frequency.of(time.item.options).time("first + ahead", time.type)
    parts = ", ".join(f"any_value(vector) FILTER (part = '{part}') AS {part}" for part in ("fitted", *COMPONENTS))
    first = "any_value(value) FILTER (part = 'fitted') AS first"
    series = f"SELECT group_id, place, {first}, {parts} FROM {model.table('factors')} GROUP BY group_id, place"
    # A part that is the whole forecast is not stored again.
    level = "coalesce(s.level[ahead + 1], CASE WHEN s.season IS NULL THEN fitted[ahead + 1] END) AS level"
    columns = [
        *_keys(model),
        f"{moment} AS {identifier(time.item.name)}",
        *(level if name == "level" else f"s.{name}[ahead + 1] AS {name}" for name in COMPONENTS),
    ]
    steps = f"SELECT *, unnest(range(len(fitted))) AS ahead FROM ({series})"
    rows = f"({steps}) AS s JOIN ({_groups(model)}) AS g ON g.id = s.group_id"
    return f"SELECT {', '.join(columns)} FROM {rows} ORDER BY g.id ASC, s.place ASC, s.ahead ASC"


def anomalies_sql(model: StoredModel, predicted: str, *, demand: bool = False) -> str:
    """Return rows with their forecasts, the interval of a ``level``, and ``is_anomaly``: whether the label lies outside."""
    level = model.definition.free_parameter("level")
    factor = f"(SELECT {quantile_sql('q')} / {WIDTH} FROM (SELECT (1 + {checked_level(level)}) / 2 AS q))"
    lower, upper = f"prediction - (prediction - lower) * {factor}", f"prediction + (upper - prediction) * {factor}"
    if demand:  # the end below the mean may be 0, and says nothing of the deviation
        lower = at_least_zero(f"prediction - (upper - prediction) * {factor}", "prediction")
    outside = f"({TARGET} > {upper} OR {TARGET} < {lower})"
    # The columns of the source are unpacked last: one of them may be called lower.
    columns = f"prediction, {lower} AS lower, {upper} AS upper, model_level, {outside} AS is_anomaly"
    return f"SELECT unnest({SOURCE}), {columns} FROM ({predicted}) ORDER BY {PLACE} ASC"


def _groups(model: StoredModel) -> str:
    """Return the query of groups: their keys, and the texts of the keys of each of their series."""
    return f"SELECT group_id AS id, keys, categories[2] AS series FROM {model.table('groups')}"


def _keys(model: StoredModel) -> list[str]:
    """Return the SQL of the typed keys of a group and of the series at a ``place`` in it."""
    definition = model.definition
    series = definition.series_columns("CAST(series[place] AS VARCHAR[])")
    return [f"{sql} AS {identifier(name)}" for name, sql in (*definition.key_columns("keys"), *series)]


def checked_level(level: str) -> str:
    """Return the SQL of a probability that a parameter gives."""
    number = f"TRY_CAST({level} AS DOUBLE)"
    return f"CASE WHEN {number} > 0 AND {number} < 1 THEN {number} ELSE error('level is a probability between 0 and 1') END"


#: The forecast of the step ``ahead`` of a series, and its deviation.
_MEAN, _DEVIATION = "mean[ahead]", f"nullif(deviation[ahead], {UNKNOWN})"
#: The steps that ``horizon`` gives, NULL for all, and the probabilities that ``quantiles`` gives, where ``n`` is the former as
#: a number and ``found`` are the latter as a list, of one if it is a number.
_STEPS = (
    "CASE WHEN horizon IS NULL THEN NULL WHEN n >= 1 AND n = floor(n) AND n < 2**62 THEN CAST(n AS BIGINT)"
    " ELSE CAST(error('horizon is a whole number of steps, at least 1') AS BIGINT) END"
)
_WANTED = (
    "CASE WHEN quantiles IS NULL OR len(list_filter(found, lambda each: each > 0 AND each < 1)) = len(found) THEN found"
    " ELSE CAST(error('quantiles are probabilities between 0 and 1, such as [0.1, 0.5, 0.9]') AS DOUBLE[]) END"
)
_GIVEN = "TRY_CAST(horizon AS DOUBLE) AS n, TRY_CAST('[' || trim(CAST(quantiles AS VARCHAR), '[]') || ']' AS DOUBLE[]) AS found"

#: The steps after the end of each series, the steps of the past, and rows that are unlike their forecasts.
FORECAST = Endpoint(
    "_forecast",
    (("horizon", "NULL"), ("level", "0.9"), ("quantiles", "NULL::DOUBLE[]")),
    "Steps after the end of each series with ",
    predicts=False,
    select=forecast_sql,
)
SAMPLED_FORECAST = replace(FORECAST, select=partial(forecast_sql, sampled=True))
ENDLESS_FORECAST = replace(FORECAST, select=partial(forecast_sql, goes_on=True))
DEMAND_FORECAST = replace(FORECAST, select=partial(forecast_sql, demand=True, goes_on=True))
FITTED = Endpoint("_fitted", (), "Steps of the past with ", predicts=False, select=fitted_sql)
COMPONENTS_OF = Endpoint(
    "_components", (), "Level, trend, season and remainder of the steps of the past: parts of ", False, components_sql
)
ANOMALIES = Endpoint(
    "_anomalies", (("src", None), ("level", "0.99")), "Rows and whether they are anomalies, with ", select=anomalies_sql
)
DEMAND_ANOMALIES = replace(ANOMALIES, select=partial(anomalies_sql, demand=True))

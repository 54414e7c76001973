"""Random TRAIN statements over a random table: every learner, encoder, validation, grouping and weight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st
from random_tables import Column, Table, tables

#: What each learner may predict, and how its search space is written.
LEARNS = {
    "linear_regression": ("number", "count"),
    "logistic_regression": ("flag", "two classes", "three classes"),
    "linear_svm": ("flag", "two classes", "three classes"),
    "poisson_regression": ("count",),
    "gbdt": ("number", "flag", "two classes", "three classes"),
    "mlp": ("number", "flag", "three classes"),
}
LINEAR = ("linear_regression", "logistic_regression", "linear_svm", "poisson_regression")
_GRIDS = {
    "linear_regression": ("l2 IN (0.5, 20)", "l1 IN (0, 1), l2 IN (0.1)"),
    "logistic_regression": ("l2 IN (0.5, 20)", "l1 IN (0, 1), l2 IN (0.1)"),
    "linear_svm": ("l2 IN (0.5, 20)", "l1 IN (0, 1), l2 IN (0.1)"),
    "poisson_regression": ("l2 IN (0.5, 20)", "l1 IN (0, 1), l2 IN (0.1)"),
    "gbdt": ("num_leaves IN (3, 5)", "learning_rate IN (0.1, 0.3)"),
    "mlp": ("learning_rate IN (0.01, 0.1)", "hidden_layers IN ([3], [4, 2])"),
}
_OPTIONS: dict[str, dict[str, Any]] = {
    "gbdt": {"num_iterations": 4, "min_data_in_leaf": 3},
    "mlp": {"epochs": 3, "batch_size": 16},
}
#: The ways of linear learners: their usual one, and others with what makes them quick.
_SOLVERS: tuple[dict[str, Any], ...] = (
    {}, {}, {"solver": "coordinate_descent"}, {"solver": "sgd", "epochs": 4, "batch_size": 8},
)  # fmt: skip
#: How many statements were written so far.
WRITTEN = [0]


@dataclass(frozen=True)
class Statement:
    """A TRAIN statement by its clauses."""

    learner: str
    features: tuple[str, ...]
    grouping: str = "g"
    grid: str = ""
    validate: str = "NONE"
    weighted: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    label: str = "y"

    def train(self, model: str = "m", source: str = "t", where: str = "") -> str:
        """Return the statement's SQL."""
        WRITTEN[0] += 1
        options = dict(self.options) | ({"weight": "w"} if self.weighted else {})
        parts = [f"TRAIN OR REPLACE MODEL {model} USING {self.learner} PREDICT {self.label}"]
        parts += [f"FEATURES ({', '.join(self.features)})", f"FROM {source}"]
        parts += [f"WHERE {where}"] if where else []
        parts += [f"GROUP BY {self.grouping}"] if self.grouping else []
        parts += [f"OVER GRID ({self.grid})"] if self.grid else []
        parts += [f"VALIDATE {self.validate}"]
        parts += (
            [f"WITH ({', '.join(f'{name} = {_shown(value)}' for name, value in options.items())})"] if options else []
        )
        return " ".join(parts)

    def with_options(self, **options: Any) -> Statement:
        """Return the statement with other options."""
        return replace(self, options=tuple((dict(self.options) | options).items()))

    @property
    def linear(self) -> bool:
        return self.learner in LINEAR

    @property
    def solver(self) -> str:
        """The way by which it says that it trains."""
        return str(dict(self.options).get("solver", ""))

    @property
    def has_optimum(self) -> bool:
        """Whether its models are the best there are, which are the same however one comes to them."""
        return self.solver != "sgd"


def _shown(value: Any) -> str:
    quoted = isinstance(value, str) and value != "w"
    return f"'{value}'" if quoted else str(value).lower() if isinstance(value, bool) else str(value)


def _features(column: Column, learner: str) -> st.SearchStrategy[str]:
    name = column.name
    if column.role == "array":
        return st.just(name)
    if column.role == "list":
        return st.sampled_from([f"multihot({name})", f"hash({name}, 4)"])
    if column.role == "category":
        encoders = [f"onehot({name})", f"ordinal({name})", f"hash({name}, 4)"]
        # A number that follows from the order of names is a poor feature of anything but trees; it must be right all the same.
        return st.sampled_from(encoders if learner == "gbdt" else encoders[::2])
    if learner == "mlp" or (column.shape in ("large", "skewed") and learner != "gbdt"):
        return st.sampled_from([f"zscore({name})", f"minmax({name})", f"zscore(impute({name}))"])
    return st.sampled_from(
        [name, f"zscore({name})", f"minmax({name})", f"impute({name}, 'median')", f"zscore(impute({name}))"]
    )


@st.composite
def statements(draw: st.DrawFn, table: Table, learners: tuple[str, ...]) -> Statement:
    """Draw a statement that one of these learners can carry out on the table."""
    learner = draw(st.sampled_from([name for name in learners if table.label in LEARNS[name]]))
    options = {"seed": draw(st.integers(0, 3)), **_OPTIONS.get(learner, {})}
    if learner in LINEAR:
        options |= draw(st.sampled_from(_SOLVERS))
    return Statement(
        learner=learner,
        features=tuple(draw(st.permutations([draw(_features(column, learner)) for column in table.columns]))),
        grouping=draw(st.sampled_from(["g", "ROLLUP (g)", ""])),
        grid=draw(st.sampled_from(["", *_GRIDS[learner]])),
        validate=draw(st.sampled_from(["NONE", "WHERE h", "SAMPLE 25%", "FOLDS 3"])),
        weighted=draw(st.booleans()),
        options=tuple(options.items()),
    )


@st.composite
def cases(draw: st.DrawFn, learners: tuple[str, ...] = tuple(LEARNS), arrays: bool = True) -> tuple[Table, Statement]:
    """Draw a table and a statement about it; ``arrays`` as in ``tables``."""
    labels = tuple(sorted({label for name in learners for label in LEARNS[name]}))
    table = draw(tables(labels, arrays))
    return table, draw(statements(table, learners))

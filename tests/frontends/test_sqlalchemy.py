"""``grouplearn://`` engines, on the SQLAlchemy that is installed and, in a process of its own, on 2.0."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import duckdb
import pandas as pd
import pytest
import sqlalchemy as sa
from sqlalchemy import orm

import grouplearn
from grouplearn.frontends.sqlalchemy import sql_type

TABLE = "CREATE TABLE t AS SELECT i % 3 AS g, i * 0.5 AS x, i * 1.5 + 1 AS y FROM range(300) AS r(i)"
TRAIN = "TRAIN MODEL m USING linear_regression PREDICT y FEATURES (x) FROM t GROUP BY g OVER GRID (l2 IN (0, 1))"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    made = sa.create_engine(f"grouplearn:///{tmp_path}/shop.duckdb")
    with made.begin() as con:
        con.exec_driver_sql(TABLE)
    yield made
    made.dispose()


def test_train_is_a_statement_like_any_other(engine: sa.Engine) -> None:
    with engine.begin() as con:
        best = con.exec_driver_sql(TRAIN)
        assert list(best.keys())[:3] == ["g", "l2", "n_rows"]
        assert [(row.g, row.l2, row.status) for row in best] == [(g, 0, "done") for g in range(3)]
    with engine.connect() as con:
        predicted = con.execute(sa.text("SELECT count(prediction) FROM m_predict(t) WHERE g = :g"), {"g": 1})
        assert predicted.scalar() == 100


def test_parameters_are_values(engine: sa.Engine) -> None:
    with engine.begin() as con:
        con.execute(sa.text(TRAIN.replace("(0, 1)", "(:low, :high)")), {"low": 0.5, "high": 7})
        assert con.exec_driver_sql("SELECT DISTINCT l2 FROM m ORDER BY l2").scalars().all() == [0.5, 7]


def test_rollback_undoes_a_training(engine: sa.Engine) -> None:
    with engine.connect() as con:
        con.exec_driver_sql(TRAIN)
        assert [row.model for row in con.exec_driver_sql("SHOW MODELS")] == ["m"]
        con.rollback()
        assert con.exec_driver_sql("SHOW MODELS").all() == []


def test_an_error_keeps_its_caret(engine: sa.Engine) -> None:
    with engine.connect() as con, pytest.raises(sa.exc.ProgrammingError) as error:
        con.exec_driver_sql(TRAIN.replace("linear_regression", "linear_regresion"))
    assert isinstance(error.value.orig, grouplearn.BindError)
    assert "^^^^^^^^^^^^^^^^" in str(error.value)
    assert 'Did you mean "linear_regression"?' in str(error.value)


def test_pandas_reads_models_and_our_statements(engine: sa.Engine) -> None:
    with engine.begin() as con:
        con.exec_driver_sql(TRAIN)
    assert list(pd.read_sql("FROM m WHERE is_best ORDER BY g", engine).g) == [0, 1, 2]
    assert list(pd.read_sql("SHOW MODELS", engine).model) == ["m"]
    assert len(pd.read_sql_table("m", engine)) == 6
    pd.DataFrame({"g": [0, 2], "x": [1.0, 5.0]}).to_sql("new", engine, index=False)
    predicted = pd.read_sql("SELECT g, prediction FROM m_predict(new) ORDER BY g", engine)
    assert predicted.prediction.tolist() == pytest.approx([4, 16])


def test_pandas_reads_from_a_connection_of_ours() -> None:
    with grouplearn.connect(progress=None) as con, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "pandas only supports SQLAlchemy")
        con.execute(TABLE)
        assert len(pd.read_sql(TRAIN, con)) == 3


def test_a_database_in_memory_is_one_for_the_thread() -> None:
    engine = sa.create_engine("grouplearn:///:memory:")
    with engine.begin() as con:
        con.exec_driver_sql(TABLE)
    with engine.connect() as con:
        assert len(con.exec_driver_sql(TRAIN).all()) == 3
    engine.dispose()


ANSWERED = [
    TRAIN,
    "SHOW MODELS",
    "DESCRIBE MODEL m",
    "EVALUATE MODEL m ON t",
    f"EXPLAIN {TRAIN}",
    "SHOW LEARNERS",
    "FROM t",
]


def test_rows_are_there_after_commit_and_after_the_next_statement(engine: sa.Engine) -> None:
    with engine.connect() as con:
        results = []
        for statement in ANSWERED:
            results.append(con.exec_driver_sql(statement))
            con.commit()
        rows = [result.all() for result in results]
    assert len(rows[0]) == 3
    assert [row.model for row in rows[1]] == ["m"]
    assert all(rows)
    assert len(rows[-1]) == 300


def test_a_stream_is_read_as_it_is_computed(engine: sa.Engine) -> None:
    endless = sa.text("SELECT i FROM range(100000000000) AS r(i)")
    with engine.connect() as con:
        stream = con.execution_options(stream_results=True).execute(endless)
        assert stream.fetchmany(2) == [(0,), (1,)]


@pytest.mark.parametrize("at", ["engine", "connection"])
def test_autocommit_keeps_what_each_statement_did_and_no_error_stays(tmp_path: Path, at: str) -> None:
    url = f"grouplearn:///{tmp_path}/auto.duckdb"
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT") if at == "engine" else sa.create_engine(url)
    with engine.connect() as con:
        each = con.execution_options(isolation_level="AUTOCOMMIT") if at == "connection" else con
        each.exec_driver_sql(TABLE)
        with pytest.raises(sa.exc.DBAPIError):
            each.exec_driver_sql("SELECT CAST('wrong' AS INTEGER)")
        assert len(each.exec_driver_sql(TRAIN).all()) == 3
    with engine.connect() as con:
        assert [row.model for row in con.exec_driver_sql("SHOW MODELS")] == ["m"]
        level = con.get_isolation_level()
        con.exec_driver_sql("DROP MODEL m")
    assert level == ("AUTOCOMMIT" if at == "engine" else "SNAPSHOT")
    with engine.connect() as con:
        models = con.exec_driver_sql("SHOW MODELS").all()
    assert bool(models) == (
        at == "connection"
    )  # there a connection has its own level again, at which the DROP is undone
    engine.dispose()


def test_control_c_keeps_the_connection_and_with_it_a_database_in_memory() -> None:
    engine = sa.create_engine("grouplearn:///:memory:")
    with engine.connect() as con:
        con.exec_driver_sql(TABLE)
        con.commit()
        press = threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT))
        press.start()
        slow = TRAIN.replace("linear_regression", "mlp").replace("OVER GRID (l2 IN (0, 1))", "WITH (epochs = 10000000)")
        with pytest.raises(KeyboardInterrupt):
            con.exec_driver_sql(slow)
        con.rollback()
        assert con.exec_driver_sql("SELECT count(*) FROM t").scalar() == 300
    engine.dispose()


def test_tables_and_models_are_described_by_duckdb(engine: sa.Engine) -> None:
    with engine.begin() as con:
        con.exec_driver_sql(TRAIN)
        con.exec_driver_sql("CREATE SCHEMA other; CREATE TABLE other.far (i INTEGER)")
    seen = sa.inspect(engine)
    assert seen.get_table_names() == ["t"]
    assert seen.get_view_names() == [
        "m",
        "m_curves",
        "m_features",
        "m_history",
        "m_importance",
        "m_schedule",
        "m_versions",
        "m_weights",
    ]
    assert seen.get_table_names("other") == ["far"]
    assert "trials" in seen.get_table_names("grouplearn")
    assert seen.has_table("m")
    assert not seen.has_table("nothing")
    assert seen.get_table_comment("m")["text"] == "One row per group and configuration of the model."
    with pytest.raises(sa.exc.NoSuchTableError):
        seen.get_columns("nothing")
    model = sa.Table("m", sa.MetaData(), autoload_with=engine)
    with engine.connect() as con:
        query = sa.select(model.c.g, model.c.l2).where(model.c.is_best).order_by(model.c.g)
        assert [tuple(row) for row in con.execute(query)] == [(0, 0), (1, 0), (2, 0)]


def test_types_and_constraints_are_reflected(engine: sa.Engine) -> None:
    with engine.begin() as con:
        con.exec_driver_sql(
            "CREATE TABLE kinds (i INTEGER PRIMARY KEY, s VARCHAR NOT NULL DEFAULT 'x', d DECIMAL(9, 2))"
        )
        con.exec_driver_sql("CREATE TABLE parts (i INTEGER REFERENCES kinds (i), j DOUBLE UNIQUE, CHECK (j > 3))")
        con.exec_driver_sql(
            "CREATE TABLE nested (l DOUBLE[], s STRUCT(a INTEGER, b VARCHAR), m MAP(VARCHAR, INTEGER), e ENUM('a', 'b,c'),"
            " z TIMESTAMPTZ, u UUID, b BLOB, ll INTEGER[3][4][], ml MAP(INTEGER[], STRUCT(a INTEGER[][])))"
        )
    tables = sa.MetaData()
    tables.reflect(engine, views=True)
    kinds, parts, nested = (tables.tables[name] for name in ("kinds", "parts", "nested"))
    assert [column.name for column in kinds.primary_key] == ["i"]
    assert (kinds.c.s.nullable, str(kinds.c.s.server_default.arg)) == (False, "'x'")
    assert (kinds.c.d.type.precision, kinds.c.d.type.scale) == (9, 2)
    assert [key.target_fullname for key in parts.c.i.foreign_keys] == ["kinds.i"]
    assert isinstance(parts.c.j.type, sa.Double)
    seen = sa.inspect(engine)
    assert [each["column_names"] for each in seen.get_unique_constraints("parts")] == [["j"]]
    assert [each["sqltext"] for each in seen.get_check_constraints("parts")] == ["(j > 3)"]
    names = [type(column.type).__name__ for column in nested.columns]
    assert names == ["ARRAY", "Struct", "Map", "Enum", "TIMESTAMP", "Uuid", "LargeBinary", "ARRAY", "Map"]
    assert (nested.c.l.type.dimensions, nested.c.ll.type.dimensions) == (None, 3)
    assert isinstance(nested.c.ll.type.item_type, sa.Integer)
    assert nested.c.e.type.enums == ["a", "b,c"]
    with engine.begin() as con:
        con.execute(kinds.insert(), {"i": 1, "s": "one", "d": Decimal("2.50")})
        assert con.execute(sa.select(kinds)).one() == (1, "one", Decimal("2.50"))


@pytest.mark.parametrize("macro", ["lower(x) AS 'ran'", "duckdb_tables() AS TABLE SELECT 'ran' AS table_name"])
def test_describing_a_database_runs_no_macro_of_its_author(tmp_path: Path, macro: str) -> None:
    with duckdb.connect(str(tmp_path / "theirs.duckdb")) as con:
        con.execute(f"CREATE TABLE t (i INT); CREATE MACRO {macro}")
    engine = sa.create_engine(f"grouplearn:///{tmp_path}/theirs.duckdb")
    inspector = sa.inspect(engine)
    questions: list[Callable[[], object]] = [
        inspector.get_table_names, inspector.get_view_names, inspector.get_schema_names,
        lambda: inspector.has_table("t"), lambda: inspector.get_columns("t"), lambda: inspector.get_foreign_keys("t"),
        lambda: inspector.get_pk_constraint("t"), lambda: inspector.get_table_comment("t"),
        lambda: sa.Table("t", sa.MetaData(), autoload_with=engine),
    ]  # fmt: skip
    for question in questions:
        with pytest.raises(grouplearn.NotTrusted, match="hides DuckDB's own"):
            question()
    engine.dispose()


@pytest.fixture
def extensions(tmp_path: Path) -> Iterator[Path]:
    """Where DuckDB's default connection puts extensions that it installs, from a place that has none."""
    settings = ("extension_directory", "custom_extension_repository")
    for setting in settings:
        duckdb.execute(f"SET {setting} = '{tmp_path / setting}'")
    yield tmp_path / "extension_directory"
    for setting in settings:
        duckdb.execute(f"RESET {setting}")


@pytest.mark.parametrize("name", ["INET", "INET[]", "STRUCT(a INTEGER, b INET)", "MAP(VARCHAR, inet)"])
def test_a_type_of_an_extension_installs_none(extensions: Path, name: str) -> None:
    kind = sql_type(name)
    assert type(kind).__name__ == ("INET" if name == "INET" else "NullType")
    assert not extensions.exists()


def test_mapped_classes_work(engine: sa.Engine) -> None:
    class Base(orm.DeclarativeBase):
        pass

    class Sale(Base):
        __tablename__ = "sale"
        number: orm.Mapped[int] = orm.mapped_column(primary_key=True, autoincrement=False)
        place: orm.Mapped[str]

    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        session.add_all([Sale(number=1, place="north"), Sale(number=2, place="south")])
        session.commit()
        assert session.scalars(sa.select(Sale.place).order_by(Sale.number)).all() == ["north", "south"]


@pytest.mark.thorough
@pytest.mark.skipif(sa.__version__.startswith("2.0"), reason="this is SQLAlchemy 2.0")
def test_all_of_this_on_sqlalchemy_2_0() -> None:
    from helpers.overlay import overlay

    environment = overlay("sqlalchemy-2.0", "sqlalchemy>=2.0.50,<2.1", dependencies=False)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", __file__]
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stdout
    assert "this is SQLAlchemy 2.0" in run.stdout

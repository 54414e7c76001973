"""What stands where a model's macro would go is found before anything is trained, wherever and by whomever it was made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import grouplearn
from grouplearn.catalog.schema import Location, seen_once
from grouplearn.store import objects

TRAIN = "TRAIN MODEL {name} USING linear_regression PREDICT y FEATURES (x) FROM t"


@pytest.fixture
def con() -> Iterator[grouplearn.Connection]:
    with grouplearn.connect(progress=False) as connection:
        connection.execute("CREATE TABLE t AS SELECT i AS x, i * 2 AS y FROM range(20) AS r(i)")
        connection.execute("CREATE SCHEMA \"odd schema\"; CREATE SCHEMA s; ATTACH ':memory:' AS other")
        yield connection


@pytest.mark.examples(9)
@pytest.mark.parametrize("kind", ["AS x + 1", "AS TABLE SELECT x"])
@pytest.mark.parametrize(
    ("macro", "name"),
    [
        ("m_predict", "m"),
        ("M_Predict", "m"),
        ('"odd schema"."a ""b_predict"', '"odd schema"."a ""b"'),
        ("s.m_predict", "s.m"),
        ("other.main.m_predict", "other.m"),
    ],
)
@pytest.mark.parametrize("begun", [False, True])
def test_a_macro_in_the_way(con: grouplearn.Connection, kind: str, macro: str, name: str, begun: bool) -> None:
    if begun:
        con.begin()
    con.execute(f"CREATE MACRO {macro}(x) {kind}")
    with pytest.raises(grouplearn.ModelExists, match=r"macro .* already exists"):
        con.execute(TRAIN.format(name=name))


@pytest.mark.parametrize("macro", ["s.m_predict", "other.main.m_predict", "mm_predict", "m_predicts"])
def test_a_macro_of_another_place_or_name_is_not_in_the_way(con: grouplearn.Connection, macro: str) -> None:
    con.execute(f"CREATE MACRO {macro}(x) AS x + 1")
    con.execute(TRAIN.format(name="m"))
    assert con.execute("SELECT count(prediction) FROM m_predict(t)").fetchall() == [(20,)]


def test_a_macro_that_took_the_place_of_ours_is_in_the_way_of_another_training(con: grouplearn.Connection) -> None:
    con.execute(TRAIN.format(name="m"))
    con.execute("DROP MACRO TABLE m_predict; CREATE MACRO m_predict(x) AS TABLE SELECT 'mine' AS a")
    with pytest.raises(grouplearn.ModelExists, match='macro "m_predict" already exists'):
        con.execute(TRAIN.format(name="m").replace("TRAIN", "TRAIN OR REPLACE"))
    assert con.execute("FROM m_predict(1)").fetchall() == [("mine",)]


def test_no_macros_are_listed_where_there_is_none_of_the_name(con: grouplearn.Connection) -> None:
    native = con.native
    with seen_once(native, own=True):
        assert objects._lacks_macro(native, Location("memory", "main", "m_predict"))
        native.execute("CREATE MACRO m_predict(x) AS x")
        assert not objects._lacks_macro(native, Location("memory", "main", "M_predict"))
    assert not objects._lacks_macro(native, Location("memory", "main", "nothing"))  # the user may have a transaction


@pytest.mark.parametrize("name", ["grouplearn", "GroupLearn"])
def test_the_macro_of_no_model_hides_what_predicts(con: grouplearn.Connection, tmp_path: Path, name: str) -> None:
    con.execute(TRAIN.format(name="m"))
    told = 'function "grouplearn_predict" already exists'
    with pytest.raises(grouplearn.Error, match=told):
        con.execute(TRAIN.format(name=name))
    with pytest.raises(grouplearn.Error, match=told):
        con.execute(f"ALTER MODEL m RENAME TO {name}")
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'm'}'")
    with pytest.raises(grouplearn.Error, match=told):
        con.execute(f"IMPORT MODEL {name} FROM '{tmp_path / 'm'}'")
    assert con.execute("SHOW MODELS").fetchall()


def test_a_database_of_the_name_of_our_schema_is_in_the_way_before_anything_is_trained(
    con: grouplearn.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    con.execute(TRAIN.format(name="m"))
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'm'}'")
    con.execute(f"ATTACH '{tmp_path / 'GroupLearn.db'}'")
    monkeypatch.setattr("grouplearn.statements.workflow.training.run", lambda *_: pytest.fail("it was trained"))
    for statement in (
        TRAIN.format(name="n"),
        TRAIN.format(name="grouplearn.n"),
        TRAIN.format(name="m").replace("TRAIN", "TRAIN OR REPLACE"),
        f"IMPORT MODEL n FROM '{tmp_path / 'm'}'",
        "ALTER MODEL m RENAME TO n",
        "RETRY FAILED MODEL m",
    ):
        with pytest.raises(grouplearn.Error, match='no model can be stored beside a database named "GroupLearn"'):
            con.execute(statement)
    assert con.execute("SELECT count(predict_value('m', t)) FROM t").fetchall() == [(20,)]
    con.execute("DROP MODEL m")
    assert con.execute("SHOW MODELS").fetchall() == []

"""Random statements over random tables keep the rules; ``GROUPLEARN_EXAMPLES=100`` tries so many cases of each."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.thorough import enough
from hypothesis import given
from hypothesis import strategies as st
from random_statements import Statement, cases
from random_tables import Table, create
from rules import RULES, Rule
from trying import trying, wanted

import grouplearn

pytestmark = pytest.mark.filterwarnings("ignore")


def keeps(rule: Rule, learners: tuple[str, ...], folder: Path, examples: int, shrink: bool = True) -> None:
    """Try a rule on random cases of these learners."""

    @trying(examples, shrink)
    @given(case=cases(learners), threads=st.sampled_from([2, 1]))
    def check(case: tuple[Table, Statement], threads: int) -> None:
        table, statement = case
        with grouplearn.connect(progress=False) as con:
            con.execute(f"SET threads = {threads}")
            con.execute(f"SET temp_directory = '{folder}'")
            create(con, table)
            rule(con, table, statement)

    check()


@pytest.mark.parametrize("name", RULES)
def test_rule(name: str, tmp_path: Path) -> None:
    listed = RULES[name]
    keeps(listed.check, listed.learners, tmp_path, wanted(enough(listed.examples, max(2, listed.examples // 2))))

"""What DuckDB itself has is asked by any number of threads, and what one of them makes no other sees."""

import threading

from grouplearn.bind.sql.builtins import pristine_database
from grouplearn.catalog.checks import tables


def test_threads_that_ask_at_the_same_time() -> None:
    found: list[object] = []
    together = threading.Barrier(4)

    def ask() -> None:
        together.wait()
        try:
            found.append(sorted(tables._ours.__wrapped__().tables))
        except BaseException as error:
            found.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [sorted(tables._ours().tables)] * 4
    with pristine_database() as con:
        assert con.execute("SELECT count(*) FROM duckdb_tables()").fetchall() == [(0,)]

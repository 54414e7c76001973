"""What DuckDB's settings keep the stock shell from, they keep our statements from there, and nobody's directory is touched."""

from pathlib import Path

from native_builds import TABLE, TRAIN

SAFE = "SET enable_external_access = false;"


def refused(done, *words: str) -> None:
    assert done.returncode != 0
    for word in words:
        assert word in done.stderr


def test_directories_are_closed_where_duckdb_has_closed_them(run, tmp_path):
    (tmp_path / "open").mkdir()
    allowed = f"SET allowed_directories = ['{tmp_path}/open'];"
    exports = f"EXPORT MODEL m TO '{tmp_path}/open/m';\nEXPORT MODEL m TO '{tmp_path}/closed';"
    done = run("-csv", stdin=TABLE + TRAIN + allowed + SAFE + exports)
    assert "m is exported" in done.stdout
    assert done.stderr.count("Error: ") == 1
    refused(done, f'Permission Error: directory "{tmp_path}" may not be used: enable_external_access is false', "^^^^")
    assert [path.name for path in tmp_path.iterdir()] == ["open"]
    done = run("-csv", stdin=SAFE + f"IMPORT MODEL m FROM '{tmp_path}/open/m';")
    refused(done, f'Permission Error: directory "{tmp_path}/open/m" may not be used')
    done = run("-csv", stdin=allowed + SAFE + f"IMPORT MODEL m FROM '{tmp_path}/open/m'; SELECT count(*) AS n FROM m;")
    assert done.stdout.split()[-1] == "3"


def test_a_transaction_goes_on_after_it_was_kept_from_a_directory(run, tmp_path):
    sql = f"{TABLE}{TRAIN}{SAFE}BEGIN;\nCREATE TABLE mine AS SELECT 5 AS five;\nEXPORT MODEL m TO '{tmp_path}/m';\nCOMMIT;\n"
    done = run("-csv", "-cmd", ".bail off", stdin=f"{sql}FROM mine;\n")
    assert "Permission Error" in done.stderr
    assert done.stdout.split()[-1] == "5"
    assert not (tmp_path / "m").exists()


def test_a_cluster_and_other_processes_are_outside_of_the_database(run, ours):
    lines = (
        TABLE + SAFE,
        ours("SET grouplearn_address = $$127.0.0.1:6379$$;"),
        TRAIN.replace(";", " WITH (executor = 'ray');"),
        TRAIN,
        "SELECT count(*) AS n FROM m;",
    )
    done = run("-csv", stdin="\n".join(lines))
    refused(
        done,
        "Permission Error: a Ray cluster is outside of the database, and may not be used",
        "Permission Error: executor = 'ray' is outside of the database",
    )
    assert done.stdout.split()[-1] == "3"


def test_settings_are_locked_with_those_of_duckdb(run, ours):
    lines = ("SET lock_configuration = true;", ours("SET grouplearn_workers = 2;"), ours("RESET grouplearn_workers;"))
    done = run("-csv", stdin="\n".join(lines))
    refused(done, 'Cannot change configuration option "grouplearn_workers" - the configuration has been locked')
    assert done.stderr.count("the configuration has been locked") == 2


def test_runs_are_not_looked_for_where_they_may_not_be(run, ours, tmp_path):
    database = tmp_path / "shop.duckdb"
    left = Path(f"{database}.grouplearn") / "run-123e4567-e89b-42d3-a456-426614174000"
    left.mkdir(parents=True, mode=0o700)
    left.parent.chmod(0o700)
    (left / "pid").touch()
    done = run(str(database), "-csv", stdin=TABLE + SAFE + TRAIN + ours("SHOW RUNS;"))
    refused(done, f'Permission Error: directory "{database}.grouplearn" may not be used')
    assert left.is_dir()
    done = run(str(database), "-csv", stdin=ours("SHOW RUNS;"))
    assert (done.returncode, done.stderr) == (0, "")
    assert not left.exists(), "nobody works there any more"


def test_a_link_beside_the_database_leads_nowhere(run, ours, tmp_path):
    database, victim = tmp_path / "shop.duckdb", tmp_path / "victim"
    for name in ("run-1", "gone-photos", "run-123e4567-e89b-42d3-a456-426614174000"):
        (victim / name).mkdir(parents=True)
        (victim / name / "pid").touch()
    Path(f"{database}.grouplearn").symlink_to(victim)
    done = run(str(database), "-csv", stdin=TABLE + TRAIN + ours("SHOW RUNS;"))
    refused(done, "the runs of this database are not looked for: it is a link")
    assert len(list(victim.glob("*/pid"))) == 3

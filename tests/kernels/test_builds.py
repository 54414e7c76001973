"""Which compiled library a process takes, and what it says of one that is not there."""

from pathlib import Path

import pytest

from grouplearn.kernels.build import builds, compiling


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose processor runs three builds, with none compiled."""
    monkeypatch.delenv(builds.VARIABLE, raising=False)
    monkeypatch.setattr(compiling, "path_of", lambda build: tmp_path / f"kernels_{build}.so")
    monkeypatch.setattr(compiling, "supported", lambda: ["avx512", "avx2", "portable"])
    builds.name.cache_clear()
    (tmp_path / "kernels_processor.so").touch()
    yield tmp_path
    builds.name.cache_clear()


def test_the_best_build_that_is_compiled_is_taken(folder: Path) -> None:
    for build in ("portable", "avx2"):
        (folder / f"kernels_{build}.so").touch()
        builds.name.cache_clear()
        assert builds.name() == build


def test_a_build_that_is_asked_for_and_missing_is_refused_with_how_to_compile_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "kernels_avx2.so").touch()
    monkeypatch.setenv(builds.VARIABLE, "portable")
    builds._load.cache_clear()
    assert builds.name() == "portable"
    with pytest.raises(builds.KernelsMissing, match=r"not there: kernels_portable\.so") as raised:
        builds._load("portable")
    assert "python -m grouplearn.kernels.build.compiling portable." in str(raised.value)


def test_a_checkout_without_any_build_says_how_to_compile_one(folder: Path) -> None:
    (folder / "kernels_processor.so").unlink()
    with pytest.raises(builds.KernelsMissing, match=r"not there: kernels_processor\.so") as raised:
        builds.name()
    assert "python -m grouplearn.kernels.build.compiling." in str(raised.value)


def test_builds_are_compiled_when_they_are_named_or_for_this_processor(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def compile_library(library: Path, *_: object) -> None:
        made.append(library.stem)
        library.write_text(compiling.fingerprint())

    monkeypatch.setattr(compiling, "compile_library", compile_library)
    (folder / "kernels_processor.so").unlink()
    compiling.compile_builds()
    assert made == ["kernels_processor", "kernels_avx512"]
    compiling.compile_builds(["portable", "avx512"])
    assert made[2:] == ["kernels_portable"]
    compiling.compile_builds(force=True)
    assert made[3:] == ["kernels_processor", "kernels_avx512"]
    (folder / "kernels_avx512.so").write_text(
        "compiled from other sources"
    )  # copied here, so that it is the newest file
    compiling.compile_builds()
    assert made[5:] == ["kernels_avx512"]

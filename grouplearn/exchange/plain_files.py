"""Formats ``lightgbm`` and ``safetensors``: the artifact of each group's best trial in files for other programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import duckdb
import numpy as np
import safetensors.numpy

from grouplearn.catalog.records import StoredModel
from grouplearn.exchange.best import best_of, index


def lightgbm_files(con: duckdb.DuckDBPyConnection, model: StoredModel) -> Iterator[tuple[str, bytes]]:
    """Yield a model text per group for ``lightgbm.Booster(model_file=...)``, with our feature names."""
    every = best_of(con, model)
    for each in every:
        yield each.file("txt"), _with_names(each.group.artifact.text, each.features)
    yield from index(model, every, "txt")


def _with_names(text: bytes, features: Sequence[str]) -> bytes:
    names = f"feature_names={' '.join(lightgbm_names(features))}"
    return re.sub(rb"^feature_names=.*$", lambda _: names.encode(), text, count=1, flags=re.MULTILINE)


def lightgbm_names(features: Sequence[str]) -> list[str]:
    """Return the names with ``_`` for characters that LightGBM does not allow; duplicates get ``_1``, ``_2``."""
    taken: set[str] = set()
    names = []
    for feature in features:
        plain = free = re.sub(r"[^\w.=()\-]", "_", feature) or "_"
        number = 0
        while free in taken:
            number += 1
            free = f"{plain}_{number}"
        taken.add(free)
        names.append(free)
    return names


def safetensors_files(con: duckdb.DuckDBPyConnection, model: StoredModel) -> Iterator[tuple[str, bytes]]:
    """Yield a file of tensors per group; its metadata has the learner, the group and the features."""
    every, definition = best_of(con, model), model.definition
    for each in every:
        metadata = {
            "learner": definition.shown_learner,
            "task": definition.label.name,
            "keys": json.dumps(list(each.group.keys)),
            "features": json.dumps(list(each.features)),
            "classes": json.dumps([definition.classes[number] for number in each.group.classes]),
            "hyperparameters": json.dumps(dict(each.parameters)),
        }
        tensors = {name: np.ascontiguousarray(value) for name, value in sorted(each.group.artifact.tensors.items())}
        yield each.file("safetensors"), bytes(safetensors.numpy.save(tensors, metadata))
    yield from index(model, every, "safetensors")

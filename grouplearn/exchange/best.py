"""The best trial of every group for exports to other programs, and the index of their files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from grouplearn.catalog.records import StoredModel
from grouplearn.catalog.schema import table
from grouplearn.data.encoding.registry import features_of
from grouplearn.exchange.directory_reader import CannotExchange
from grouplearn.learners.contract.config import Config
from grouplearn.models.forms.form import GroupModel
from grouplearn.models.forms.routed import level_names
from grouplearn.prediction.group_models import load_groups

INDEX = "index.json"


@dataclass(frozen=True, slots=True)
class BestOfGroup:
    """A group's predicting model, its number of rows, and the config of its best trial."""

    group: GroupModel
    n_rows: int
    config: int
    parameters: Config

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the feature columns."""
        return tuple(features_of(self.group.fitted))

    def file(self, suffix: str) -> str:
        """Return the name of the group's file."""
        return f"group_{self.group.id}.{suffix}"


def best_of(con: duckdb.DuckDBPyConnection, model: StoredModel) -> list[BestOfGroup]:
    """Return the best trials of the groups that have one; raises CannotExchange if there is none."""
    query = (
        f"SELECT group_id, n_rows, best FROM {table(model.location.catalog, 'groups')}"
        f" WHERE model = '{model.id}'::UUID AND best IS NOT NULL"
    )
    facts = {group: (n_rows, best) for group, n_rows, best in con.execute(query).fetchall()}
    configs = model.definition.configs
    found = [BestOfGroup(group, *facts[group.id], configs[facts[group.id][1]]) for group in load_groups(con, model)]
    if not found:
        raise CannotExchange(
            f'every group of model "{model.definition.name}" has failed, so there is nothing to export'
        )
    return found


def index(model: StoredModel, every: Sequence[BestOfGroup], suffix: str, **more: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the index: the model, the inputs, and each group's key, file, hyperparameters and classes."""
    definition = model.definition
    levels = level_names(definition)
    groups = [
        {
            "file": each.file(suffix),
            "level": levels[each.group.level],
            "keys": {definition.keys[key].name: each.group.keys[key] for key in definition.sets[each.group.level]},
            "n_rows": each.n_rows,
            "hyperparameters": dict(each.parameters),
            "classes": [definition.classes[number] for number in each.group.classes],
            "features": list(each.features),
        }
        for each in every
    ]
    items = [
        {"name": entry.item.name, "kind": entry.item.kind, "encoder": entry.item.encoder, "sql": entry.sql}
        for entry in definition.items
    ]
    document = {
        "model": definition.name,
        "learner": definition.shown_learner,
        "task": definition.label.name,
        "target": definition.target_name,
        "label_type": definition.label_type,
        "classes": list(definition.classes),
        "group_by": [{"name": key.name, "type": key.type, "sql": key.sql} for key in definition.keys],
        "levels": list(levels),
        "inputs": items,
        **more,
        "groups": groups,
    }
    yield INDEX, json.dumps(document, indent=1, ensure_ascii=False).encode()

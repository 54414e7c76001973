"""What SQL reads of linear models: the weights of each output, and joins with those of a row's categories and lists."""

from __future__ import annotations

from grouplearn.data.encoding.registry import encoder_of, of_list
from grouplearn.learners import registry
from grouplearn.models.definition import ModelDefinition
from grouplearn.models.forms.items import is_number, position_join
from grouplearn.models.forms.routed import BEST, GROUP, NUMBER, ROUTED, item_alias
from grouplearn.models.outputs import link as links


def place_sql(definition: ModelDefinition, output: int) -> str:
    """Return an output's place among a group's outputs, from 1; NULL for a class that the group does not have."""
    return f"list_position(classes, {output})" if definition.label.scores_classes else "1"


def known_sql(definition: ModelDefinition, output: int) -> str:
    """Return whether a group has an output."""
    return f"{place_sql(definition, output)} IS NOT NULL"


def weights_sql(definition: ModelDefinition, output: int) -> str:
    """Return an output's weights, one per feature."""
    if not definition.label.scores_classes:
        return "weights"
    place = place_sql(definition, output)
    return f"weights[({place} - 1) * len(features) + 1 : {place} * len(features)]"


def linked_sql(definition: ModelDefinition, score: str) -> str:
    """Return a score, linked if the links of configs differ: then each row has its group's own."""
    by_config = [registry.links(definition.learner, [config], definition.label) for config in definition.configs]
    if len({*by_config}) == 1:
        return score
    of_link = {
        sql: ", ".join(str(number) for number, own in enumerate(by_config) if link in own)
        for link, sql in links.LINKS.items()
        if link != "identity"
    }
    cases = (
        f"WHEN r.__grouplearn_config IN ({own}) THEN {sql.format(f'({score})')}" for sql, own in of_link.items() if own
    )
    return f"CASE {' '.join(cases)} ELSE {score} END"


def joins_sql(definition: ModelDefinition, outputs: range) -> list[str]:
    """Return the joins for the weights of the categories and lists of a row ``r``, ``j{number}.w{output}``, and for places."""
    joins = []
    for number, entry in enumerate(definition.items):
        if encoder_of(entry.item).role == "place":
            joins.append(position_join(number))
        elif entry.item.is_list:
            joins.append(_entries_join(definition, number, outputs))
        elif not is_number(entry):
            joins.append(_weights_join(definition, number, outputs))
    return joins


def _entries_join(definition: ModelDefinition, number: int, outputs: range) -> str:
    """Return the join for the sums of the weights of a row's list, ``j{number}.w{output}``."""
    item = definition.items[number].item
    lists = f"SELECT {NUMBER} AS number, {GROUP} AS group_id, {item_alias(number)} AS entries FROM {ROUTED}"
    sums = ", ".join(f"fsum(e.amount * w.w{output}) AS w{output}" for output in outputs)
    found = (
        f"SELECT e.number, {sums} FROM ({of_list(item).entries_sql(item, lists)}) AS e"
        f" JOIN ({weights_of_values(definition, number, outputs)}) AS w"
        " ON w.group_id = e.group_id AND w.value = e.value GROUP BY e.number"
    )
    return f"LEFT JOIN ({found}) AS j{number} ON j{number}.number = r.{NUMBER}"


def _weights_join(definition: ModelDefinition, number: int, outputs: range) -> str:
    """Return the join for the weights of an item's category, ``j{number}.w{output}``."""
    return (
        f"LEFT JOIN ({weights_of_values(definition, number, outputs)}) AS j{number}"
        f" ON j{number}.group_id = r.{GROUP} AND j{number}.value = r.{item_alias(number)}"
    )


def weights_of_values(definition: ModelDefinition, number: int, outputs: range) -> str:
    """Return the query of the weights of an item's values by group."""
    item, at = definition.items[number].item, number + 1
    encoder = encoder_of(item)
    count, values = encoder.columns_sql(item, f"categories[{at}]")
    value = encoder.numbers_sql(f"places[{at}]", f"categories[{at}]") if encoder.wide else f"unnest({values})"
    columns = ["group_id", f"{value} AS value"]
    for output in outputs:
        own = f"({weights_sql(definition, output)})[starts[{at}] + 1 : starts[{at}] + {count}]"
        if encoder.wide:
            own = nonzeros_sql(definition, at, "", place_sql(definition, output))
        columns.append(f"unnest(CASE WHEN {known_sql(definition, output)} THEN {own} END) AS w{output}")
    return f"SELECT {', '.join(columns)} FROM {BEST}"


def nonzeros_sql(definition: ModelDefinition, at: int, artifact: str, output: str) -> str:
    """Return the weights of the ``at``-th wide item for an output of the model, counted from 1."""
    if not definition.label.scores_classes:
        return f"{artifact}nonzeros[{at}]"
    width = f"len({artifact}places[{at}])"
    return f"{artifact}nonzeros[{at}][({output} - 1) * {width} + 1 : {output} * {width}]"

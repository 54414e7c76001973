"""LightGBM's model texts: those that it wrote pass, and no other that passes ends the process or a loop."""

import itertools
import random
import re
import subprocess
import sys
from pathlib import Path

import lightgbm
import numpy as np
import pytest
from helpers.thorough import enough

from grouplearn.learners.contract.problem import Problem
from grouplearn.learners.trees.gbdt import Gbdt
from grouplearn.learners.trees.lightgbm import model_text as gbdt_text
from grouplearn.models.label import NUMBER, SEVERAL_CLASSES, TWO_CLASSES, Label
from grouplearn.models.state import Artifact

N_FEATURES = 4


def text_of(label: Label, n_classes: int = 0, **parameters: object) -> bytes:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(400, N_FEATURES))
    x[:, 0] = rng.integers(0, 70, 400)  # categories of three words
    x[rng.random(400) < 0.1, 1] = np.nan
    value = x[:, 2] * 2 + np.isin(x[:, 0], [3, 5, 60]) * 3
    y = value if label == NUMBER else np.digitize(value, [0.0] if n_classes == 2 else [-1.0, 1.0])
    given = {
        "objective": {NUMBER: "regression", TWO_CLASSES: "binary", SEVERAL_CLASSES: "multiclass"}[label],
        **({"num_class": n_classes} if label == SEVERAL_CLASSES else {}),
        "min_data_per_group": 5, "cat_smooth": 1, "max_cat_to_onehot": 1, "num_threads": 1, "verbosity": -1, "seed": 1,
    }  # fmt: skip
    data = lightgbm.Dataset(x, y, categorical_feature=[0])
    return lightgbm.train(given | parameters, data, 4).model_to_string().encode()


TEXTS = {
    "value": (NUMBER, 0, text_of(NUMBER)),
    "binary": (TWO_CLASSES, 2, text_of(TWO_CLASSES, 2)),
    "classes": (SEVERAL_CLASSES, 3, text_of(SEVERAL_CLASSES, 3)),
    "two of more classes": (SEVERAL_CLASSES, 2, text_of(TWO_CLASSES, 2)),
    "forest": (NUMBER, 0, text_of(NUMBER, boosting="rf", bagging_fraction=0.5, bagging_freq=1)),
    "dart": (NUMBER, 0, text_of(NUMBER, boosting="dart")),
    "linear leaves": (NUMBER, 0, text_of(NUMBER, linear_tree=True)),
    "counts": (NUMBER, 0, text_of(NUMBER, objective="fair", reg_sqrt=True)),
    "one against the rest": (
        SEVERAL_CLASSES,
        3,
        text_of(SEVERAL_CLASSES, 3, objective="multiclassova", sigmoid=0.125, boosting="dart"),
    ),
    "constrained": (NUMBER, 0, text_of(NUMBER, monotone_constraints=[0, 1, -1, 0])),
    "leaves alone": (NUMBER, 0, text_of(NUMBER, min_data_in_leaf=300)),
}


def flaw(text: bytes, name: str = "value", n_features: int = N_FEATURES) -> str | None:
    label, n_classes, _ = TEXTS[name]
    return Gbdt().validation_error(Problem(label, n_features, n_classes), Artifact("lightgbm", text=text))


@pytest.mark.parametrize("name", TEXTS)
def test_what_lightgbm_writes_passes(name: str) -> None:
    assert flaw(TEXTS[name][2], name) is None


def test_texts_of_another_problem() -> None:
    text = TEXTS["value"][2]
    assert flaw(text, n_features=5) == "max_feature_idx is 3, and there are 5 feature columns"
    assert flaw(text, "binary") == "its objective is 'regression', and it is one of two classes"
    assert (
        flaw(TEXTS["classes"][2], "two of more classes")
        == "its objective is 'multiclass num_class:3', and it is one of 2 classes"
    )
    assert Gbdt().validation_error(Problem(NUMBER, 4), Artifact("tensors", {})) == "it is tensors, not lightgbm"


def changed(pattern: bytes, new: bytes, name: str = "value") -> bytes:
    """Return a text with something else, its tree_sizes set right: a lie that is told everywhere."""
    text, count = re.subn(pattern, new, TEXTS[name][2], count=1, flags=re.MULTILINE)
    assert count == 1
    starts = [found.start() for found in re.finditer(rb"^Tree=\d", text, re.MULTILINE)] + [text.index(b"end of trees")]
    sizes = b" ".join(b"%d" % (stop - start) for start, stop in itertools.pairwise(starts))
    return re.sub(rb"^tree_sizes=.*$", b"tree_sizes=" + sizes, text, count=1, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("pattern", "new", "why"),
    [
        (rb"^left_child=\S+", b"left_child=0", "left_child is beyond its tree, or not after its parent"),
        (rb"^left_child=\S+", b"left_child=1000000", "left_child is beyond its tree, or not after its parent"),
        (rb"^right_child=\S+", b"right_child=-1000000", "right_child is beyond its tree, or not after its parent"),
        (rb"^(right_child=.*?)(-\d+)(.*?)(-\d+)", rb"\1\2\3\2", "a child has no parent, or two"),
        (rb"^left_child=\S+", b"left_child=1e3", "left_child has a value that is not a number"),
        (rb"^left_child=\S+", b"left_child=99999999999999999999", "left_child has a value that is not a whole number"),
        (rb"^left_child=\S+ ", b"left_child=", r"tree 0 has not \d+ numbers in left_child"),
        (rb"^split_feature=\S+", b"split_feature=4", "split_feature is beyond the feature columns"),
        (rb"^split_feature=\S+", b"split_feature=-1", "split_feature is beyond the feature columns"),
        (rb"^decision_type=\S+", b"decision_type=127", "decision_type is none"),
        (rb"^leaf_value=\S+", b"leaf_value=nan", "leaf_value has a value that is not finite"),
        (rb"^leaf_value=\S+", b"leaf_value=1e999", "leaf_value has a value that is not finite"),
        (rb"^leaf_value=\S+", b"leaf_value=1.2.3", "leaf_value has a value that is not a number"),
        (rb"^split_gain=\S+", b"split_gain=e", "split_gain has a value that is not a number"),
        (rb"^internal_value=\S+ \S+", b"internal_value=1  ", "internal_value"),
        (rb"^leaf_value=\S+ ", b"leaf_value=", r"tree 0 has not \d+ numbers in leaf_value"),
        (rb"^num_leaves=\d+", b"num_leaves=2147483647", "tree 0 is not a tree of the size that tree_sizes says"),
        (rb"^num_leaves=\d+", b"num_leaves=9999999", r"tree 0 has not 9999998 numbers in split_feature"),
        (rb"^num_leaves=\d+", b"num_leaves=0", "tree 0 is not a tree"),
        (rb"^num_cat=\d+", b"num_cat=0", "num_cat=0 and other sets of categories"),
        (rb"^num_cat=\d+", b"num_cat=9999", "cat_boundaries are not as many"),
        (rb"^cat_boundaries=0 \d+", b"cat_boundaries=0 0", "cat_boundaries do not lead through cat_threshold"),
        (rb"^(cat_boundaries=.*) \d+$", rb"\1 99999999", "cat_boundaries do not lead through cat_threshold"),
        (rb"^cat_threshold=\d+", b"cat_threshold=4294967296", "cat_threshold has a word that is not a set of 32 categories"),
        (rb"^shrinkage=.*\n", b"", "tree 0 is not a tree"),
        (rb"^threshold=.*\n", b"", "tree 0 is not a tree"),
        (rb"^is_linear=0", b"is_linear=1", "tree 0 is not a tree"),
        (rb"^Tree=1", b"Tree=7", "tree 1 is not a tree"),
        (rb"^num_class=1", b"num_class=1000000", "num_class is 1000000, not 1"),
        (rb"^num_tree_per_iteration=1", b"num_tree_per_iteration=0", "num_tree_per_iteration is 0, not 1"),
        (rb"^max_feature_idx=3", b"max_feature_idx=999999999", "max_feature_idx is 999999999"),
        (rb"^objective=.*$", b"objective=multiclass num_class:99999999", "its objective is 'multiclass"),
        (rb"^feature_names=\S+ ", b"feature_names=", "feature_names is not a list of 4"),
        (rb"^feature_infos=\S+ ", b"feature_infos=", "feature_infos is not a list of 4"),
        (rb"^(feature_names=.*)$", rb"\1\nmonotone_constraints=1 0 0", "monotone_constraints is not a list of 4 directions"),
        (rb"^(feature_names=.*)$", rb"\1\nmonotone_constraints=1 0 0 2", "monotone_constraints is not a list of 4 directions"),
        (rb"^version=v4", b"version=vv", "it does not begin as LightGBM's models do"),
        (rb"^version=v4", b"version=v4\0", "it does not begin as LightGBM's models do"),
        (rb"^leaf_count=", b"leaf_count=\0", "it has characters that LightGBM does not write"),
        (rb"^feature_names=\S+", b"feature_names=\xff", "it has characters that LightGBM does not write"),
        (rb"^feature_infos=\S+", b"feature_infos=\xff", "it has characters that LightGBM does not write"),
        (rb"^parameters:", b"parameters:\xff", "it has characters that LightGBM does not write"),
        (rb"^parameters:", b"parser:", "it has parameters that no model of ours has"),
    ],
)  # fmt: skip
def test_wrong_numbers_are_named(pattern: bytes, new: bytes, why: str) -> None:
    found = flaw(changed(pattern, new))
    assert re.search(why, found or ""), found


@pytest.mark.parametrize(
    ("pattern", "new", "why"),
    [
        (rb"^num_features=\S+", b"num_features=99", r"has not \d+ numbers in leaf_const and num_features"),
        (rb"^num_features=\S+", b"num_features=-1", r"has not \d+ numbers in leaf_const and num_features"),
        (rb"^num_features=\S+ \S+ \S+ \S+", b"num_features=" + b" ".join([b"4611686018427387904"] * 4), "has not"),
        (rb"^num_features=\S+ ", b"num_features=", r"has not \d+ numbers in leaf_const and num_features"),
        (rb"^leaf_const=\S+ ", b"leaf_const=", r"has not \d+ numbers in leaf_const and num_features"),
        (rb"^leaf_const=\S+", b"leaf_const=inf", "leaf_const or leaf_coeff has a value that is not finite"),
        (rb"^leaf_coeff=\S+", b"leaf_coeff=nan", "leaf_const or leaf_coeff has a value that is not finite"),
        (rb"^leaf_coeff=\S+ ", b"leaf_coeff=", r"has not \d+ numbers in leaf_features and leaf_coeff"),
        (rb"^leaf_features=\d", b"leaf_features=4", "leaf_features is beyond the feature columns"),
        (rb"^leaf_features=\d", b"leaf_features=-1", "leaf_features is beyond the feature columns"),
        (rb"^leaf_features=\d", b"leaf_features=x", "leaf_features has a value that is not a whole number"),
        (rb"^leaf_const=.*\n", b"", "is not a tree"),
    ],
)
def test_wrong_numbers_of_linear_leaves_are_named(pattern: bytes, new: bytes, why: str) -> None:
    found = flaw(changed(pattern, new, "linear leaves"), "linear leaves")
    assert re.search(why, found or ""), found


def test_something_else_after_the_trees() -> None:
    text = TEXTS["value"][2].replace(b"end of trees", b"end of tree!")
    assert flaw(text) == "there is something else after its last tree"


def test_a_text_without_trees() -> None:
    text = re.sub(
        rb"tree_sizes=.*?end of trees", b"tree_sizes=\n\nend of trees", TEXTS["value"][2], count=1, flags=re.DOTALL
    )
    assert flaw(text) == "it has no tree"


def test_sizes_of_trees_that_lead_elsewhere() -> None:
    text = TEXTS["value"][2]
    for sizes in (b"9999999999", b"1 1", b"", b"-5 5", b"x"):
        assert flaw(re.sub(rb"^tree_sizes=.*$", b"tree_sizes=" + sizes, text, count=1, flags=re.MULTILINE))


def test_a_categorical_split_without_its_set() -> None:
    text = TEXTS["value"][2]
    trees = re.finditer(rb"^threshold=(.*)\ndecision_type=(.*)$", text, re.MULTILINE)
    tree = next(tree for tree in trees if any(int(number) & 1 for number in tree[2].split()))
    place = next(place for place, number in enumerate(tree[2].split()) if int(number) & 1)
    for wrong in (b"9999", b"-1", b"0.5", b"nan"):
        numbers = tree[1].split()
        numbers[place] = wrong
        found = flaw(changed(re.escape(tree[1]), b" ".join(numbers)))
        assert found == "a categorical split names a set of categories that its tree does not have"


def mutated(text: bytes, rng: random.Random) -> bytes:
    """Return a text with some numbers or lines changed, and, at times, its sizes right."""
    for _ in range(rng.randint(1, 3)):
        numbers = list(re.finditer(rb"-?\d+(\.\d+)?", text))
        found = rng.choice(numbers)
        new = rng.choice(
            [b"0", b"-1", b"1", b"7", b"30", b"-30", b"2147483647", b"-2147483648", b"1e300", b"nan", b"", b" "]
        )
        text = text[: found.start()] + new + text[found.end() :]
    if rng.random() < 0.7 and b"end of trees" in text:
        starts = [found.start() for found in re.finditer(rb"^Tree=", text, re.MULTILINE)] + [
            text.index(b"end of trees")
        ]
        sizes = b" ".join(b"%d" % (stop - start) for start, stop in itertools.pairwise(starts))
        text = re.sub(rb"^tree_sizes=.*$", b"tree_sizes=" + sizes, text, count=1, flags=re.MULTILINE)
    return text


def use_mutants(seed: int, count: int) -> None:
    """Load, predict with and turn into nodes every mutant that passes: run in a process of its own."""
    from grouplearn.learners.trees.lightgbm.library import LightGBMError
    from grouplearn.learners.trees.nodes import FeatureColumns, nodes_of, parse_forest

    rng, used = random.Random(seed), 0
    x = np.random.default_rng(seed).normal(size=(20, N_FEATURES)) * 40
    columns = FeatureColumns(np.arange(N_FEATURES), np.full(N_FEATURES, -1))
    for number in range(count):
        name = list(TEXTS)[number % len(TEXTS)]
        label, _, text = TEXTS[name]
        mutant = mutated(text, rng)
        if flaw(mutant, name) is None:
            used += 1
            try:
                Gbdt().score(label, Artifact("lightgbm", text=mutant), x)
            except LightGBMError as error:
                raise AssertionError(f"{error}: {mutant!r}") from None
            nodes_of(parse_forest(mutant), columns)
    print(used)


def test_mutants_that_pass_do_no_harm() -> None:
    """Texts with other numbers, the sizes right: what passes is loaded and predicts, in a process that may end or hang."""
    script = "import sys; sys.path[:0] = [sys.argv[1], sys.argv[1] + '/..']; import test_gbdt_text"
    script += f"; test_gbdt_text.use_mutants(5, {enough(1000, 300)})"
    run = subprocess.run(
        [sys.executable, "-c", script, str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert int(run.stdout) > 50


def test_a_forest_of_no_split_and_one_of_many() -> None:
    gbdt_text.check([(Problem(NUMBER, N_FEATURES), TEXTS[name][2]) for name in ("leaves alone", "value")])
    assert b"num_leaves=1\n" in TEXTS["leaves alone"][2]


def test_many_texts_together() -> None:
    models = [
        (Problem(label, N_FEATURES, n_classes), Artifact("lightgbm", text=text))
        for label, n_classes, text in TEXTS.values()
    ]
    assert Gbdt().are_valid(models)
    problem, right = models[0]
    wrong = Artifact("lightgbm", text=changed(rb"^split_feature=\S+", b"split_feature=4"))
    assert Gbdt().are_valid([*models, (Problem(problem.label, N_FEATURES), right)])
    assert not Gbdt().are_valid([*models, (problem, wrong)])
    assert not Gbdt().are_valid([(problem, wrong), *models])

"""All forms by the name that learners declare."""

from __future__ import annotations

from collections.abc import Mapping

from grouplearn.learners import registry
from grouplearn.learners.contract.learner import Learner
from grouplearn.learners.contract.optional import IsMadeOfFunctions
from grouplearn.learners.contract.problem import Problem
from grouplearn.models.definition import ModelDefinition
from grouplearn.models.forms.form import Form
from grouplearn.models.forms.layers import Layers
from grouplearn.models.forms.linear.linear import Linear
from grouplearn.models.forms.own import OwnTensors
from grouplearn.models.forms.trees.trees import Trees
from grouplearn.models.forms.vectors import Vectors
from grouplearn.models.state import Artifact

_OWN = OwnTensors()
FORMS: Mapping[str, Form] = {form.name: form for form in (Linear(), Trees(), Layers(), Vectors(), _OWN)}
#: The form of each of the catalog tables that forms have.
TABLES: Mapping[str, Form] = {name: form for form in FORMS.values() for name in form.tables}


def declared_form(learner: Learner) -> Form:
    """Return the form of a learner's models; KeyError for a name that no form has."""
    form = learner.declaration.form
    return form if isinstance(form, Form) else FORMS[str(form)]


def form_of(definition: ModelDefinition) -> Form:
    """Return the form of a model; that of an unknown learner is its own."""
    known = registry.is_known(definition.learner)
    return declared_form(registry.learner(definition.learner)) if known else _OWN


def form_error(learner: Learner) -> str | None:
    """Return why a learner's models cannot be of the form that it declares; None if they can."""
    form = learner.declaration.form
    if not isinstance(form, Form) and form not in FORMS:
        return f"its form is one of {', '.join(FORMS)}, or a Form, got {form!r}"
    found = declared_form(learner)
    unknown = [name for name in found.tables if name not in TABLES]
    if unknown:
        return f"the tables of its form are among {', '.join(TABLES)}, got {unknown[0]!r}"
    return found.learner_error(learner)


def misfit(learner: Learner, problem: Problem, artifact: Artifact) -> str | None:
    """Return why a newly finished model does not have its declared form; only for learners of packages and users that are
    not made of functions."""
    if learner.declaration.stored_name in registry.LEARNERS or isinstance(learner, IsMadeOfFunctions):
        return None
    return declared_form(learner).misfit(learner, problem, artifact)

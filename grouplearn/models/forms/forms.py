"""All forms by the name that learners declare."""

from __future__ import annotations

from collections.abc import Mapping

from grouplearn.bind.definition import ModelDefinition
from grouplearn.learners import registry
from grouplearn.models.forms.form import Form
from grouplearn.models.forms.layers import Layers
from grouplearn.models.forms.linear import Linear
from grouplearn.models.forms.own import Own
from grouplearn.models.forms.trees.trees import Trees
from grouplearn.models.forms.vectors import Vectors

_LINEAR, _OWN = Linear(), Own()
FORMS: Mapping[str, Form] = {form.name: form for form in (_LINEAR, Trees(), Layers(), Vectors(), _OWN)}
#: The form of each of the catalog tables that forms have.
TABLES: Mapping[str, Form] = {name: form for form in FORMS.values() for name in form.tables}


def form_of(definition: ModelDefinition) -> Form:
    """Return the form of a model; that of an unknown learner is its own, unless its models are declared linear."""
    if definition.linear:
        return _LINEAR
    form = FORMS[registry.form(definition.learner)]
    return _OWN if form is _LINEAR else form

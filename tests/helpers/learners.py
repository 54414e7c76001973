"""Names of learners by what a group's rows are to them."""

from grouplearn.learners import registry

#: Learners from rows with features; others learn series.
OF_ROWS = tuple(name for name in registry.names() if not registry.learner(name).declaration.takes_series)

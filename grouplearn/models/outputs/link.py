"""Links: what is predicted for a score."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

#: The prediction for a score s, a sum of leaves or a linear predictor: s, exp(s), 1 / (1 + exp(-s)), or s·abs(s); for one
#: score per class: their softmax, or the logistic function of each divided by the sum of all.
Link = Literal["identity", "exp", "logistic", "signed_square", "softmax", "one_vs_all"]
#: Inverse links in SQL.
LINKS: Mapping[Link, str] = {
    "identity": "{0}",
    "exp": "exp({0})",
    "logistic": "1 / (1 + exp(-{0}))",
    "signed_square": "{0} * abs({0})",
}

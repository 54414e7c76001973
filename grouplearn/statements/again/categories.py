"""Categories of new rows that the encoders of a group do not know."""

from __future__ import annotations

import numpy as np

from grouplearn.amounts import counted
from grouplearn.data.encoding.registry import encoder_of
from grouplearn.train.job import Job, group_of


def unknown_categories(job: Job, number: int) -> str | None:
    """Return which features of a group, whose encoders stay as they were fitted, have other categories in its rows, and how many.

    None if they have none.
    """
    earlier, group, found = job.earlier.get(number), group_of(job, number), []
    for item, fitted in zip(job.items, earlier.fitted if earlier else (), strict=False):
        if not (item.is_named or item.kind == "categories") or encoder_of(item).rest(item) in fitted.categories:
            continue
        seen: set[str] = set()
        for start, stop in group.ranges:
            codes, names = job.dataset.observed(item, slice(start, stop))
            seen |= {names[code] for code in np.unique(codes[codes >= 0]).tolist()}
        if unknown := len(seen.difference(fitted.categories)):
            found.append(f"{item.name} has {counted(unknown, 'category', 'categories')} that the model does not know")
    return "; ".join(found) or None

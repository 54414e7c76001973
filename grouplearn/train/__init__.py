"""One training unit from rows to results: the loop, its batches, steps of split groups."""

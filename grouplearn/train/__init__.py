"""One training unit from rows to results: the loop, its batches, rounds in one process; steps of split groups are in sharded."""

"""From dataset rows to what a learner sees: chosen, encoded, in shards or stacks."""

"""From dataset rows to a learner's input: selected, encoded, in shards or stacks."""

"""Metrics from mergeable sums, for all learners."""

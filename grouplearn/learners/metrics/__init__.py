"""Metrics from mergeable sums, the same for every learner."""

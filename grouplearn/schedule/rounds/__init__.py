"""Rounds: work on every partition, reduce each part of the parameters, and every partition takes all parts."""

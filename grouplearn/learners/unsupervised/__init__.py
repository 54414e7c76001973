"""Learners without a label: clusters and principal components."""

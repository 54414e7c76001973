"""Learners without a label: the maths of clusters and of principal components."""

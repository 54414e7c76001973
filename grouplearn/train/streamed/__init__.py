"""Training on rows that pass once: what is kept of groups, and the trials that follow from it."""

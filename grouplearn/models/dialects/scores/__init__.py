"""The steps from encoded rows to the scores of a model, by its form."""

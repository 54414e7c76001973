"""Export and import of models as directories of files, for other programs and databases."""

"""The only writer of schema grouplearn: models in, copied, replaced in part, and out."""

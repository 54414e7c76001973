"""The clauses of TRAIN bound, one module each, as the parser has them."""

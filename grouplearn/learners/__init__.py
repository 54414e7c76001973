"""The maths: a room for each family, what they have in common, and the registry that names them all."""

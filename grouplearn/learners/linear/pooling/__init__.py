"""Partial pooling of linear models: groups shrink to their mean by how sure each of them is."""

"""Clusters and components: their training, and how rows lie to them."""

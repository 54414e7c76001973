"""Model hopper parallelism, and who decides where packs hop."""

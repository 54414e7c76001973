"""Model hopper parallelism, and the schedulers of hops."""

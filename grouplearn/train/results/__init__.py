"""From finished models to results: metrics, outcomes, and what a durable run keeps on disk."""

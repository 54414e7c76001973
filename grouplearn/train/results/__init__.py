"""From finished models to results: metrics, outcomes, and what a durable run stores on disk."""

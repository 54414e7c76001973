"""Split units, step by step: their progress, the queues of their steps, and what these produce."""

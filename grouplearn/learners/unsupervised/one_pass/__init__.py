"""``kmeans`` in one pass: points that stand for rows, and clusters on these."""

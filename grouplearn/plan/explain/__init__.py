"""EXPLAIN: a plan as text, JSON, HTML and a chart, and EXPLAIN ANALYZE."""

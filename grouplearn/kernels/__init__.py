"""The arithmetic, compiled: rows to sums, small solves, trees, steps; the same bits on every processor.

``source`` holds the C++, one file per operation over one header of lanes; ``build`` compiles it to one library per kind of
processor and loads the best. Each other module is the Python side of one operation.
"""

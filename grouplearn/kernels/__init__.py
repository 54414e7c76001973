"""The arithmetic, compiled: rows to sums, small solves, trees, steps; the same bits on every processor.

``source`` holds the C++, one file per operation over one header of lanes; ``compiling`` makes one library per processor of
it when the package is built; ``library`` loads the best one. Each other module is the Python side of one operation.
"""

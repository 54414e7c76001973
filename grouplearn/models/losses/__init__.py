"""The losses of linear models: a declaration each, whose arithmetic is in ``kernels/source/losses``."""

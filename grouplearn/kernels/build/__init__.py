"""Compiles the kernels, for the package and for the machine that runs it, and finds the best build."""

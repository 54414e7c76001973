"""Kernels for many short series: exponential smoothing, theta, intermittent demand."""

"""Executes instructions: local, ray, simulated."""

"""Executes the instructions of a schedule: in this process, on Ray, or on a virtual clock."""

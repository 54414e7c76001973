"""Encoders of numbers: unchanged, imputed, scaled; arrays of them; and times as numbers."""

"""Standard errors of linear models."""

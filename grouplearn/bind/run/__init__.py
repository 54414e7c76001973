"""WITH and SET bound: where and how a statement runs."""

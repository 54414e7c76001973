"""The only writer of schema grouplearn: stores, copies, partly replaces and removes models."""

"""What the rows of a trained model say that its answer notes."""

"""What a trained model is: what it learned (label), what it predicts (outputs), what it consists of (state)."""

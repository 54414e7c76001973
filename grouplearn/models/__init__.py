"""What a trained model is: what it learned (label), predicts (outputs), consists of (forms), continues from (state)."""

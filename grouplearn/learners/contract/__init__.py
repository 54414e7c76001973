"""What every learner is: its declaration, its hyperparameters, what it computes with."""

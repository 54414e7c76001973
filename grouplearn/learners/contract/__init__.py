"""What every learner declares and supplies: its access pattern, hyperparameters, cost, state."""

"""The linear learners by stochastic gradient descent."""

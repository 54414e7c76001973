"""Networks: multilayer perceptrons by kernels, and networks of a user's own by PyTorch."""

"""Networks: multilayer perceptrons by kernels, and users' own by PyTorch."""

"""What several folders of tests share."""

import os

# Threads of libraries wait by turning in circles, on cores that other tests want: up to ten times the work of small matrices.
# Read when a library is loaded, and so here, before any is.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

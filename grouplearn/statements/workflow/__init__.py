"""The common workflow of TRAIN, RESUME and RETRY: plan, search, train, and keep the run on disk until it is stored."""

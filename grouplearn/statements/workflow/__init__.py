"""The common workflow of TRAIN, RESUME and RETRY: plan, search, train, keep on disk until stored."""

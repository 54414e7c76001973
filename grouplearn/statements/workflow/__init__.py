"""One workflow under TRAIN, RESUME and RETRY: planned, searched, trained, kept on disk until it is stored."""

"""The Ray runtime, in a child process of the user's; the only importer of ray."""

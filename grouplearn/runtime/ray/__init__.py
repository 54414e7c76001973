"""The Ray runtime, in a child of the user's process; the only importer of ray."""

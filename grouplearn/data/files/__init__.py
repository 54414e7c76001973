"""Files and directories that we create and own."""

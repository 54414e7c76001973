"""Files and directories that are ours."""

"""The notes of TRAIN's result that follow from rows."""

"""Trees: as nodes that are walked, as sets of leaves, in ONNX."""

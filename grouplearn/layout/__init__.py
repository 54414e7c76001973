"""How arrays lie: values of several runs side by side, and arrays in mapped files."""

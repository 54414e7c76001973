"""A recurrent network that learns many series at once and samples their future."""

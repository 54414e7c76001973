"""What units take: coefficients, durations and closed forms."""

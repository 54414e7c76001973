"""Steps of units whose group is split among workers: sums, averages and pushes, rounds of coordinate descent."""

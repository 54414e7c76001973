"""Operators that split groups among workers, step by step."""

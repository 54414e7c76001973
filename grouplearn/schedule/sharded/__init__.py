"""Operators whose groups are split among workers, step by step."""

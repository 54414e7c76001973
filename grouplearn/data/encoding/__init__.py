"""Encoders, one class each, with all that is known of them: from their call in SQL to their form in an export."""

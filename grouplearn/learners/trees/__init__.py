"""Boosted trees and forests, as tables and as scores."""

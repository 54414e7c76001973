"""Models to SQL: one SELECT for linear models, trees and networks, and the macro around it."""

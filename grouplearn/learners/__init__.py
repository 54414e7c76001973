"""The maths: a room per family of learners, what they share, and their registry."""

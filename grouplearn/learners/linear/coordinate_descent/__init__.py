"""The linear learners by coordinate descent on blocks of columns."""

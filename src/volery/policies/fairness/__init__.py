"""Fairness between users: whose task is next, what each user is due, and who has more than that.

docs/reference/fairness.md says what each policy guarantees.
"""

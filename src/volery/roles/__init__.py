"""Roles of components and their parts: mechanism that two designs or more share, without decisions."""

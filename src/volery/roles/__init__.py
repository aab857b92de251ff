"""What components are made of: mechanism that two designs or more share, without decisions."""

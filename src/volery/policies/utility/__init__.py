"""Utility: expressions of what machines are worth to a job (STRL), and plans that maximise their sum."""

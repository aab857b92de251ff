"""Playback: what a camera saw of a run, or of a journalled federation, shown at any moment of it."""

"""Playback: a tracer records a run or a journalled federation, and pages show any moment of the recording."""

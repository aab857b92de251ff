"""Calibration: what work costs a live host on this machine, measured for the model of the lab."""

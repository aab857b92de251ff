"""A federation put to the test: load, calibration of costs, replay of journals, and journals as traces."""

"""The language that everyone speaks: plain data and the contract; no clock, no I/O, no entropy of its own."""

"""The live driver: hosts that run the lab's components on real clocks, transports and processes."""

"""What lies between hosts: bytes, transports, the broker, and frames that arrive."""

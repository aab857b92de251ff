"""Transport between hosts: codec, transports, the broker, and delivery of frames."""

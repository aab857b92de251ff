"""The lab as Python functions; `volery.lab.surface` has the public names. This package itself imports nothing heavy."""

"""The lab book of this repository: claims of published work, the runs that judge them, and the pages made of both.

It uses `volery` like any user, is no part of the wheel, and runs from the source tree: `python -m experiments`.
"""

"""The other process of `check_same_seed_same_digest`: reads a design from standard input, prints its digests."""

from __future__ import annotations

import pickle
import sys


def main() -> None:
    """Print one digest per line."""
    from volery.conformance.determinism import digests

    architecture = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by our own parent process
    sys.stdout.write("\n".join(digests(architecture)) + "\n")


if __name__ == "__main__":
    main()

"""`python -m parity` begins here."""

from parity.commands import main

main()

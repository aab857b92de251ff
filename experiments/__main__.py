"""`python -m experiments` begins here."""

from experiments.commands import main

main()

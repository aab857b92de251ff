"""Reproduction of published results: experiments, claims, the ledger of verdicts, and the pages made from it."""

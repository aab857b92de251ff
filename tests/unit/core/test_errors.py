"""Errors that are the user's to mend."""

from __future__ import annotations

import pickle

from volery.core.errors import InputError, suggestion


def test_an_input_error_names_place_and_problem_and_survives_a_process_boundary() -> None:
    error = InputError("trace.tr:17", "letters where a number belongs")
    assert str(error) == "trace.tr:17: letters where a number belongs"
    back = pickle.loads(pickle.dumps(error))
    assert (back.place, back.problem) == (error.place, error.problem)


def test_a_near_miss_is_guessed_and_anything_else_gets_the_list() -> None:
    known = ("megha", "pigeon", "oracle")
    assert suggestion("mega", known) == "; did you mean 'megha'?"
    assert suggestion("mega", ("omega", "megha")) == "; did you mean 'megha'?", "of equals the one that begins alike"
    assert suggestion("zzz", known) == "; known are megha, oracle, pigeon"

"""Expressions as tests write them, and as hypothesis draws them."""

from __future__ import annotations

from hypothesis import strategies as st

from volery.architectures.tetrisched.expressions import NOW, Barrier, Expression, LnCk, Max, Min, NCk, Scale, Sum

NAMES = ("a", "b", "all")
whole_values = st.integers(0, 9).map(float)
any_values = st.floats(0, 1e12, allow_nan=False, allow_infinity=False)


def leaves(values: st.SearchStrategy[float], k_max: int, time_max: int) -> st.SearchStrategy[Expression]:
    fields = {
        "where": st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True).map(tuple),
        "k": st.integers(1, k_max),
        "value": values,
        "start": st.integers(0, time_max),
        "duration": st.integers(1, time_max + 1),
    }
    return st.one_of(st.builds(NCk, **fields), st.builds(LnCk, **fields))


def expressions(
    values: st.SearchStrategy[float] = any_values, k_max: int = 300, time_max: int = 40, most: int = 8
) -> st.SearchStrategy[Expression]:
    """Trees of every operator."""

    def inner(of: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        several = st.lists(of, min_size=1, max_size=3).map(tuple)
        many: list[st.SearchStrategy[Expression]] = [st.builds(kind, several) for kind in (Max, Min, Sum)]
        bounded: list[st.SearchStrategy[Expression]] = [st.builds(kind, of, values) for kind in (Scale, Barrier)]
        return st.one_of(*many, *bounded)

    return st.recursive(leaves(values, k_max, time_max), inner, max_leaves=most)


def ncks(where: str, k: int, value: float, start: int = NOW, duration: int = 1) -> NCk:
    """A leaf from text: `ncks("gpu+other", 2, 4.0)`."""
    return NCk(tuple(where.split("+")), k, value, start, duration)


def lncks(where: str, k: int, value: float, start: int = NOW, duration: int = 1) -> LnCk:
    """As `ncks`, for any number of machines up to k."""
    return LnCk(tuple(where.split("+")), k, value, start, duration)


def either(*of: Expression) -> Max:
    """Alternatives, one of which is enough."""
    return Max(of)


def together(*of: Expression) -> Min:
    """Expressions that are all needed."""
    return Min(of)


def each(*of: Expression) -> Sum:
    """Each that is satisfied counts."""
    return Sum(of)

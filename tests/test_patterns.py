"""Regular expressions of files, against Python's own, and those that it would never finish."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from satchel.patterns import Pattern

_expressions = st.recursive(
    st.sampled_from(["a", "b", ".", r"\.", "[ab]", "[^a]", r"\d", r"\w", "^", "$", ""]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda t: f"({t[0]}|{t[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?"])).map(
            lambda t: f"(?:{t[0]}){t[1]}"
        ),
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(_expressions, st.text("ab.1", max_size=6))
def test_matches_as_python_does(source: str, text: str) -> None:
    assert Pattern(source).matches(text) == bool(re.fullmatch(source, text))


@pytest.mark.parametrize("source", ["(a+)+b", "(a|a)*b", "(a*)*c", "(.*a){20}b", "a?" * 99 + "b"])
def test_endless_expressions_end(source: str) -> None:
    begin = time.monotonic()
    assert not Pattern(source).matches("a" * 2000)
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize(
    "source", ["(", "a(?=b)", r"(a)\1", "((a{999}){999}){999}", "(?i)a", "(?i:a)", "(" * 5000]
)
def test_what_cannot_be_bounded_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="regular expression|flags"):
        Pattern(source)

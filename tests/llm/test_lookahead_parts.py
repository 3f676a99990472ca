"""The parts of lookahead: sizes, the tree of guesses, where they come from, what they cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.errors import ConfigError
from satchel.llm.lookahead.costs import Chance, StepCosts, expected_tokens
from satchel.llm.lookahead.guesses import LONGEST_MATCH, JacobiWindow, PromptLookup
from satchel.llm.lookahead.options import MAX_ROWS, LookaheadSizes, check_mode
from satchel.llm.lookahead.tree import TokenTree

texts = st.lists(st.integers(0, 3), max_size=40)


def test_sizes_are_checked() -> None:
    for sizes, message in (
        ({"ngram": 1}, "ngram must be 2 or more"),
        ({"window": -1}, "window must be 0 or more"),
        ({"gcap": 0}, "gcap must be 1 or more"),
        ({"gcap": True}, "gcap must be 1 or more"),
        ({"ngram": 5, "window": 4, "gcap": 4}, "steps of 33 tokens.*at most 31"),
    ):
        with pytest.raises(ConfigError, match=message):
            LookaheadSizes(**sizes)
    assert LookaheadSizes(ngram=2, window=15, gcap=15).rows == MAX_ROWS
    assert LookaheadSizes.from_metadata(None) is None
    stored = LookaheadSizes(3, 2, 1).to_dict()
    assert LookaheadSizes.from_metadata({**stored, "later": 1}) == LookaheadSizes(3, 2, 1)
    with pytest.raises(ConfigError, match="no lookahead 'maybe'.*auto, on, off"):
        check_mode("maybe")


@given(texts)
def test_a_guess_is_what_followed_the_same_end_before(text: list[int]) -> None:
    guesses = list(PromptLookup(text).guesses(5))
    for guess in guesses:
        end = text[len(text) - guess.match :]
        followed = [
            tuple(text[i + guess.match : i + guess.match + 5])
            for i in range(len(text) - guess.match)
            if text[i : i + guess.match] == end
        ]
        assert guess.tokens in followed
    assert len({g.tokens for g in guesses}) == len(guesses)
    # If the end occurred before, there is a guess, and the first has the longest match.
    matches = [
        n
        for n in range(1, LONGEST_MATCH + 1)
        if any(text[i : i + n] == text[-n:] for i in range(len(text) - n))
    ]
    assert (guesses[0].match if guesses else None) == max(matches, default=None)


@given(st.lists(texts, max_size=6), st.integers(1, 20))
def test_a_tree_holds_the_guesses_and_finds_the_longest_right_one(
    paths: list[list[int]], most: int
) -> None:
    tree = TokenTree(9, most)
    added = [[tree.tokens[n] for n in tree.add_path(path)] for path in paths]
    assert len(tree) <= most
    assert all(path[: len(kept)] == kept for path, kept in zip(paths, added, strict=True))
    assert all(parent < i for i, parent in enumerate(tree.parents))
    truth = paths[0] if paths else []

    def choose(node: int, path: list[int]) -> int:
        assert tree.tokens[node] == (path[-1] if path else 9)
        return truth[len(path)] if len(path) < len(truth) else 7

    nodes, tokens = tree.accept(choose, limit=100)
    assert tokens == [*truth, 7, 7][: len(tokens)]
    assert [tree.tokens[n] for n in nodes] == [9, *tokens[:-1]]
    right = [len(kept) for kept in added if kept == truth[: len(kept)]]
    assert len(nodes) == 1 + max(right, default=0)
    assert len(tree.accept(choose, limit=1)[1]) == 1


def test_a_window_finds_what_a_simple_model_says() -> None:
    """A model that always counts on: soon every n-gram in the pool counts."""
    window = JacobiWindow(ngram=3, window=4, gcap=2, text=[50, 60, 70])
    for token in range(12):
        tree = TokenTree(token, MAX_ROWS)
        window.add_to(tree)
        window.advance({node: tree.tokens[node] + 1 for node in tree.wanted}, steps=1)
    pool = window._pool
    assert pool
    for first, grams in pool.items():
        assert len(grams) <= 2
        assert (first + 1, first + 2) in grams
    assert window.candidates(12345) == []


def test_a_window_shrinks_where_there_is_no_room() -> None:
    window = JacobiWindow(ngram=4, window=4, gcap=2, text=[1, 2, 3])
    for most in (2, 3, 9, 31, 4, 1):
        tree = TokenTree(5, most)
        window.add_to(tree)
        assert len(tree) <= most
        window.advance(dict.fromkeys(tree.wanted, 8), steps=3)


def test_costs() -> None:
    costs = StepCosts()
    assert costs.seconds(4) == 0.0 and costs.measured(1) is None
    for seconds in (1.0, 9.0, 1.2):  # one hiccup does not count
        costs.record(1, seconds)
    assert costs.measured(1) == costs.seconds(1) == 1.2
    assert costs.seconds(9) == pytest.approx(2.4)
    costs.record(5, 2.0)
    assert costs.seconds(3) == pytest.approx(1.6)
    assert costs.seconds(10) == pytest.approx(4.0)


def test_a_chance_follows_and_forgets() -> None:
    chance = Chance(0.6, follow=0.5, forget=0.1)
    for _ in range(8):
        chance.happened(0.0)
    assert chance.value < 0.01
    for _ in range(60):
        chance.declined()
    assert chance.value == pytest.approx(0.6, abs=0.01)
    assert expected_tokens(1.0, 3) == 4

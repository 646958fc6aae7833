"""What a browser is given before any data: small, from nowhere else, in two languages, and readable."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from typing import Final

import pytest

from observability.names import ISOLATION_CHECKS, OUTCOMES, PROOF_STATES, REFUSAL_CODES, STAGES, TOKEN_KINDS
from proxy import pages

FILES: Final = {name: asset.body.decode() for name, asset in pages.assets().items()}
SCRIPTS: Final = {name: body for name, body in FILES.items() if name.endswith(".js")}
WORDS: Final = {
    language: json.loads(FILES[f"words.{language}.js"].removeprefix("export default ").removesuffix(";\n"))
    for language in ("en", "ja")
}
CODE: Final = {name: body for name, body in FILES.items() if not re.fullmatch(r"words\.\w\w\.js", name)}


def test_all_that_a_browser_ever_loads_is_small() -> None:
    """In one language, every page: nobody loads both catalogues."""
    for language in WORDS:
        loaded = [*CODE.values(), FILES[f"words.{language}.js"]]
        assert sum(len(body.encode()) for body in loaded) < 124_000
        assert sum(len(gzip.compress(body.encode())) for body in loaded) < 45_000


def test_an_asset_says_what_it_is_and_a_tag_of_what_is_in_it() -> None:
    assert pages.assets()["app.js"].content_type == "text/javascript; charset=utf-8"
    assert pages.assets()["style.css"].content_type == "text/css; charset=utf-8"
    assert pages.assets()[pages.SHELL].content_type == "text/html; charset=utf-8"
    tags = [asset.etag for asset in pages.assets().values()]
    assert len(set(tags)) == len(tags)
    assert all(re.fullmatch(r'"[0-9a-f]{32}"', tag) for tag in tags)


@pytest.mark.parametrize("name", ["../__init__.py", "__init__.py", "", ".", "/etc/passwd", "style.css/"])
def test_no_other_name_is_a_file(name: str) -> None:
    assert pages.assets().get(name) is None


def test_no_script_makes_markup_or_code_of_text() -> None:
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|DOMParser|createContextualFragment"
    code = r"\beval\(|new Function|javascript:|\.style\b"
    for name, body in SCRIPTS.items():
        assert re.findall(f"{markup}|{code}", body) == [], name


@pytest.mark.parametrize("name", sorted(FILES))
def test_nothing_comes_from_elsewhere(name: str) -> None:
    addresses = set(
        re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]+[^\s\"'`]*", re.sub(r"(?m)(^|\s)// .*$", "", FILES[name]))
    )
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert re.findall(r"@import|@font-face|url\(", FILES[name]) == []


def test_the_shell_has_no_script_style_or_handler_in_it() -> None:
    shell = FILES[pages.SHELL]
    assert re.findall(r"<script(?![^>]* src=\")", shell) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=", shell) == []


def test_the_policy_lets_nothing_else_in() -> None:
    directives = dict(part.split(" ", 1) for part in pages.CONTENT_SECURITY_POLICY.split("; "))
    assert directives["default-src"] == "'none'"
    assert directives["trusted-types"] == directives["frame-ancestors"] == directives["base-uri"] == "'none'"
    assert {value for name, value in directives.items() if name.endswith("-src")} == {"'none'", "'self'"}
    assert "unsafe" not in pages.CONTENT_SECURITY_POLICY


def test_every_file_that_is_named_exists() -> None:
    named = set(re.findall(r"/assets/([\w.-]+)", "".join(FILES.values())))
    for body in SCRIPTS.values():
        named |= set(re.findall(r"(?:from|import\() ?\"\./([\w.-]+)\"", body))
    assert named <= set(FILES)
    assert set(FILES) - named <= {pages.SHELL, "sign-in.html", "words.en.js", "words.ja.js"}


def test_both_languages_say_the_same_things() -> None:
    assert list(WORDS["en"]) == list(WORDS["ja"])
    assert all(text.strip() for words in WORDS.values() for text in words.values())


def test_both_languages_name_the_same_values() -> None:
    for key in WORDS["en"]:
        english, japanese = (sorted(re.findall(r"\{\w+\}", WORDS[language][key])) for language in ("en", "ja"))
        assert english == japanese, key


def test_japanese_is_japanese() -> None:
    """But for names, units, signs and what is the same in both."""
    kept = ("language.", "keys.", "unit.ms", "delta", "tile.ttft.p95", "heat.more")
    latin = {key for key, text in WORDS["ja"].items() if not re.search(r"[\u3040-\u30ff\u4e00-\u9fff]", text)}
    assert [key for key in latin if not key.startswith(kept)] == []


def test_every_word_that_is_asked_for_is_there() -> None:
    code = "".join(CODE.values())
    asked = set(re.findall(r"\bsay\(\"([\w.]+)\"", code)) | set(
        re.findall(r"data-(?:word|label|hint)=\"([\w.]+)\"", code)
    )
    asked |= {f"{key}.{number}" for key in re.findall(r"\bsayCount\(\"([\w.]+)\"", code) for number in ("one", "other")}
    asked |= set(re.findall(r"\"(details\.\w+)\"", code)) | set(re.findall(r"\"(keys\.\w+)\"", code))
    assert len(asked) > 60
    assert asked <= set(WORDS["en"])


def test_every_word_is_used() -> None:
    code = "".join(CODE.values())
    # What a call names in part: say(`outcome.${name}`), sayNamed("outcome", name), notice("empty").
    prefixes = set(re.findall(r"`(\w+(?:\.\w+)*)\.\$\{", code)) | set(re.findall(r"sayNamed\(\"([\w.]+)\"", code))
    named = set(re.findall(r"(?:notice|panel|table|choice)\(\"(\w+)\"", code))
    for groups in re.findall(r"\b\d{3}: \"(\w+)\"|missing: \"(\w+)\"|missing = \"(\w+)\"|: \"(error)\"", code):
        named |= set(groups) - {""}
    parts = {"title", "message", "none", "label", *re.findall(r"\[\"(first)\", \"(whole)\"\]", code)[0], "all", "bad"}
    for key in WORDS["en"]:
        stem = re.sub(r"\.(one|other|key|in)$", "", key)
        begin, _, end = key.partition(".")
        used = f'"{stem}"' in code or stem.rpartition(".")[0] in prefixes or (begin in named and end in parts)
        assert used, key


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        ("outcome", OUTCOMES),
        ("explain", OUTCOMES),
        ("stage", STAGES),
        ("refusal", sorted(REFUSAL_CODES)),
        ("proof", PROOF_STATES),
        ("check", ISOLATION_CHECKS),
        ("kind", TOKEN_KINDS),
    ],
)
def test_every_name_of_the_gate_has_words(prefix: str, names: tuple[str, ...]) -> None:
    missing = [name for name in names if f"{prefix}.{name}" not in WORDS["en"]]
    assert missing == []


def test_every_stage_has_a_colour() -> None:
    for name in STAGES:
        assert f".stage-{name} {{" in FILES["style.css"]
        assert f'"{name}"' in FILES["waterfall.js"]


COLOURS: Final = {
    name: (pair[0], pair[-1])
    for name, value in re.findall(r"(--[\w-]+): ([^;]+);", FILES["style.css"])
    if (pair := re.findall(r"#[0-9a-f]{6}", value))
}


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, "contrast ratio"."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_contrast_of_black_and_white_is_21() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


TEXT: Final = [
    *((ink, ground) for ink in ("ink", "soft", "accent") for ground in ("page", "card", "raised")),
    *((ink, ground) for ink in ("good", "watch", "bad") for ground in ("card", "raised")),
    ("watch", "watch-wash"), ("on-accent", "accent"), ("on-hero", "hero"), ("on-alarm", "alarm"),
]  # fmt: skip
# WCAG 1.4.11: what must be seen to understand a drawing or to find a field.
MARKS: Final = [
    *(("edge", ground) for ground in ("page", "card", "raised")),
    *((mark, "card") for mark in ("column", "time", "bad", "good", "watch", "heat-6", "heat-7")),
    *((f"stage-{name}", ground) for name in (*STAGES, "prefill", "stream") for ground in ("card", "raised")),
]  # fmt: skip


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("pairs", "least"), [(TEXT, 4.5), (MARKS, 3.0)], ids=["text", "marks"])
def test_it_can_be_read(pairs: Sequence[tuple[str, str]], least: float, theme: int) -> None:
    ratios = {pair: contrast(COLOURS[f"--{pair[0]}"][theme], COLOURS[f"--{pair[1]}"][theme]) for pair in pairs}
    assert {pair: round(ratio, 2) for pair, ratio in ratios.items() if ratio < least} == {}

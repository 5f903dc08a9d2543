"""An alarm for prose: the length of sentences in the documents, and phrases that must not come back.

Run as a program it prints the figures of each shelf. An alarm, not a target: a short sentence can be a riddle.
"""

import re
from collections.abc import Iterable
from functools import cache
from operator import le
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += [page for page in sorted((ROOT / "docs").rglob("*.md")) if "protocol" not in page.parts]  # that is generated
CODE: Final = ("src", "tests", "benchmarks", "tools")
TARGET: Final = (17, 30)
"""Words in a sentence at the 50th and the 90th percentile."""
BOUND: Final = (13, 22)
"""What the documents as a whole have reached. Lower it when pages are rewritten; never raise it."""
RIDDLES: Final = (
    r"\bit is looked (?:which|whether|how)\b",
    r"\bas a context it is\b",
    r"\bis let be\b",
    r"\bwhat is there\b",
    r"\bwho waits\b",
    r"\botherwise than\b",
    r"\bnot there yet\b",
    r"\bwith its place\b",
    r"\blet readers have\b",
    r"\bwho do not mind each other\b",
    r"\bthe one it likes best\b",
    r"\bnone of \d+ there is like it\b",
    r"\bof a hundred, the slowest\b",
    r"\bwhat only decompression tells\b",
    r"\bin silence\b",
    r"\bfor a fault of ours\b",
    r"\bis told to nobody\b",
    r"\bwhat is the matter\b",
    r"\bnobody can say\b",
    r"\btaken along\b",
    r"\bthat which\b",
    r"\blets? them go\b",
    r"\bthe same command goes on\b",
    r"\bcome to its end\b",
    r"\bof no use (?:any more|then)\b",
    r"\bhow a cluster is\b",
    r"\bis to be had\b",
    r"\bgo on somewhere else\b",
    r"\b(?:go|goes|going|gone) on\b",
    r"\bany more\b",
    r"\banew\b",
    r"\b(?:begins?|begun|began) again\b",
    r"\b(?:is|are|was|were|be|not) told\b",
    r"\b(?-i:[Nn]obody)\b",
    r"\b(?:somebody|someone|everybody|whoever)\b",
    r"\bof ours\b",
    r"\bof today\b",
    r"\bof its time\b",
    r"\bfor people\b",
    r"\bin front of\b",
    r"\bput in force\b",
    r"\bput back in\b",
    r"\bthere is like it\b",
    r"\bbehind (?:it|that|those|this|which|the (?:last|first|key|value|end|marker|damage|segment))\b",
    r"\bbeside (?:other work|Kafka|one worker|a rival|its rival|the rival|Java|measurements)\b",
    r"\bwith (?:much |some )?other work beside\b",
    r"\b(?:by|in) turns\b",
    r"\bmend(?:s|ed|ing)\b",
    r"\bwhat (?:came|comes|goes|went|stays)\b",
    r"\bwho(?: it is that)? (?:asks|writes|reads|holds|needs|takes)\b",
    r"\bdo(?:es)? without\b",
    r"\bnot looked at\b",
    r"\bas the documents have it\b",
    r"\bof a hundred\b",
    r"\bleft? as (?:it|they) (?:is|are|was|were)\b",
    r"\bmuch other work\b",
    r"\bwhat (?:was|is) (?:stored|sent|read|written|left|lost|due|committed|deleted|removed|older|newer)\b",
    r"\bwho is who\b",
)
"""Phrases of the dialect that STYLE's table of before and after replaces, as patterns."""
_NAME = re.compile(r"^ *(?:async )?(?:def|class) (\w+)", re.MULTILINE)
_STRING = re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"""|"(?:[^"\\\n]|\\.)*"|#[^\n]*')
_NOT_PROSE = re.compile(r"^```.*?^```|^\|.*?$|^#.*?$|<!--.*?-->|^!\[.*?$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"`[^`]*`")
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ", re.MULTILINE)
_END = re.compile(r"(?<=[.!?])[)*\"]*\s+(?=[A-Z`\"*(\[])")
_WORD = re.compile(r"[A-Za-z0-9][^\s]*")


def sentences(text: str) -> list[str]:
    """Return the sentences of a page in Markdown, without code, tables and headings; code within a line is one word."""
    prose = _CODE.sub("`code`", _LINK.sub(r"\1", _NOT_PROSE.sub("\n\n", text)))
    paragraphs = re.split(r"\n\s*\n", _ITEM.sub("\n\n", prose))
    return [each for paragraph in paragraphs for each in _END.split(" ".join(paragraph.split())) if each]


def percentiles(texts: Iterable[str]) -> tuple[int, int]:
    """Return the words in a sentence at the 50th and the 90th percentile."""
    counts = sorted(words for text in texts for each in sentences(text) if (words := len(_WORD.findall(each))) > 2) or [
        0
    ]
    return counts[len(counts) // 2], counts[len(counts) * 9 // 10]


def shelf(page: Path) -> str:
    return "/".join(page.relative_to(ROOT).parts[:-1][:2]) or "."


def test_a_sentence_is_told_from_the_next_one() -> None:
    text = (
        "# No\n\nOne is `a. B` here. Two, e.g. this,\nis [long. Link](x.md).\n\n| no | yes |\n\n- an item\n- item two\n"
    )
    assert sentences(text) == ["One is `code` here.", "Two, e.g. this, is long.", "Link.", "an item", "item two"]


def test_sentences_of_the_documents_are_no_longer_than_they_were() -> None:
    found = percentiles(page.read_text(encoding="utf-8") for page in PAGES)
    assert all(map(le, found, BOUND)), f"words in a sentence: {found}, the bound is {BOUND}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_page_reaches_the_target(page: Path) -> None:
    found = percentiles([page.read_text(encoding="utf-8")])
    assert all(map(le, found, TARGET)), f"words in a sentence: {found}, the target is {TARGET}"


@cache
def prose() -> dict[str, str]:
    """Return the text of pages, and the comments, docstrings and messages of the code, by path; code in it is cut.

    Of tests and benchmarks also the names, as sentences.
    """
    texts = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
    for path in (each for folder in CODE for each in sorted((ROOT / folder).rglob("*.py")) if each != Path(__file__)):
        text = path.read_text(encoding="utf-8")
        found = [part for part in _STRING.findall(text) if " " in part]
        if path.is_relative_to(ROOT / "tests") or path.is_relative_to(ROOT / "benchmarks"):
            found += [name.replace("_", " ") for name in _NAME.findall(text)]
        texts[str(path.relative_to(ROOT))] = "\n".join(found)
    return {path: _CODE.sub("`code`", text) for path, text in texts.items()}


def riddles(riddle: str, text: str) -> list[str]:
    """Return where a text has a riddle, also across lines of a comment or a message."""
    return [match[0] for match in re.finditer(riddle.replace(" ", r'[\s#"]+'), text, re.IGNORECASE)]


def test_a_riddle_is_found_across_lines() -> None:
    assert riddles(r"\bany more\b", "# not any\n    # more") != []
    assert riddles(r"\bany more\b", '"not any "\n    "more"') != []
    assert any(path.startswith("src/") and "Raise CorruptRecordError" in text for path, text in prose().items())
    names = prose()["tests/form/test_homes.py"]
    assert "\ntest a second home is found\n" in names, "names of tests are sentences, too"


@pytest.mark.parametrize("riddle", RIDDLES)
def test_a_riddle_does_not_come_back(riddle: str) -> None:
    found = {path: hits for path, text in prose().items() if (hits := riddles(riddle, text))}
    assert found == {}


if __name__ == "__main__":
    shelves: dict[str, list[str]] = {}
    for each in PAGES:
        shelves.setdefault(shelf(each), []).append(each.read_text(encoding="utf-8"))
    for name, texts in sorted(shelves.items()):
        print(f"{name:18} {len(texts):4} pages {percentiles(texts)}")
    print(f"{'all':18} {len(PAGES):4} pages {percentiles(text for texts in shelves.values() for text in texts)}")
    for each in PAGES:
        print(f"{each.relative_to(ROOT)!s:50} {percentiles([each.read_text(encoding='utf-8')])}")

"""Three clicks: who knows Kafka and opens the README finds each of these answers by following three links at most."""

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
CLICKS: Final = 3
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


class Answer(NamedTuple):
    """The section that answers a question, and what it has to say."""

    page: str
    heading: str
    facts: tuple[str, ...]


ANSWERS: Final = {
    "How do I convert a v1 log?": Answer(
        "docs/commands/convert.md",
        "Convert a v1 log",
        (r"magicbyte convert \S+kafka-0\.10\S* --to v2 .*--out", "--verify"),
    ),
    "What happens to headers in v0?": Answer(
        "docs/commands/convert.md",
        "What each format keeps: timestamps, headers, transactions",
        (r"\| headers \| lost \|",),
    ),
    "Which clients were tested?": Answer(
        "docs/reference/compatibility.md", "Tested clients", ("Java 0.8.2.2", "franz-go", r"kafkajs", "librdkafka")
    ),
    "How do I use it in pytest?": Answer(
        "docs/python/testing.md", "pytest", (r"def test_\w+\(kafka_broker, kafka_topic\)", "bootstrap_servers")
    ),
    "What does a crash lose?": Answer(
        "docs/internals/crash-safety.md", "What a crash loses", ("power fails", "acks=all", "group-commit")
    ),
}


class Step(NamedTuple):
    """A link of a page: its text, its page, and the heading that it leads to, or none for the top."""

    text: str
    page: Path
    anchor: str


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def links(page: Path) -> list[Step]:
    found = _LINK.findall(_FENCED.sub("", page.read_text(encoding="utf-8")))
    steps = [Step(text, (page.parent / path).resolve() if path else page, mark) for text, path, mark in found]
    return [step for step in steps if step.page.suffix == ".md" and step.page.is_file()]


def clicks(goal: Path, mark: str) -> int | None:
    """Return how many links lead from the README to a section, or None. A link to the top of its page counts."""
    pages, seen = {ROOT / "README.md"}, set[Path]()
    for number in range(1, CLICKS + 1):
        steps = [step for page in sorted(pages) for step in links(page)]
        if any(step.page == goal and step.anchor in ("", mark) for step in steps):
            return number
        seen |= pages
        pages = {step.page for step in steps} - seen
    return None


def section(page: Path, heading: str) -> str:
    """Return the text from a heading to the next one of its level or a higher one."""
    text = page.read_text(encoding="utf-8")
    match = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    assert match, (page, heading)
    behind = text[match.end() :]
    following = re.search(
        rf"^#{{1,{len(match[1])}}} ", _FENCED.sub(lambda code: "`" * len(code[0]), behind), re.MULTILINE
    )
    return behind[: following.start()] if following else behind


@pytest.mark.parametrize("question", ANSWERS)
def test_an_answer_is_three_clicks_from_the_readme(question: str) -> None:
    page, heading, facts = ANSWERS[question]
    text = section(ROOT / page, heading)
    assert [fact for fact in facts if not re.search(fact, text)] == []
    assert clicks(ROOT / page, anchor(heading)) is not None


@pytest.mark.parametrize("question", ANSWERS)
def test_the_readme_asks_the_question_and_leads_to_the_section(question: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| {re.escape(question)} \| (.*) \|$", readme, re.MULTILINE)
    assert row, question
    page, heading, _ = ANSWERS[question]
    target = f"{page}#{anchor(heading)}"
    assert f"({target})" in row[1] or (f"({page})" in row[1] and f"# {heading}\n" == first_line(ROOT / page))


def first_line(page: Path) -> str:
    return page.read_text(encoding="utf-8").splitlines(keepends=True)[0]


def test_a_page_that_no_link_leads_to_is_noticed() -> None:
    assert clicks(ROOT / "docs/commands/convert.md", "convert-a-v1-log") == 1
    assert clicks(ROOT / "docs/no-such-page.md", "") is None

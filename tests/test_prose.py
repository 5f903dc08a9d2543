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

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += [page for page in sorted((ROOT / "docs").rglob("*.md")) if "protocol" not in page.parts]  # that is generated
TARGET: Final = (17, 30)
"""Words in a sentence at the 50th and the 90th percentile."""
BOUND: Final = (13, 22)
"""What the documents as a whole have reached. Lower it when pages are rewritten; never raise it."""
PLAIN: Final = (
    "ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "docs/README.md", "docs/broker/acls.md",
    "docs/broker/administration.md", "docs/broker/overview.md", "docs/broker/quotas.md", "docs/broker/replication.md",
    "docs/broker/security.md", "docs/broker/threat-model.md", "docs/broker/transactions.md",
    "docs/commands/README.md", "docs/commands/cat.md", "docs/commands/cluster.md", "docs/commands/compact.md",
    "docs/commands/completion.md", "docs/commands/configs.md", "docs/commands/consume.md", "docs/commands/convert.md",
    "docs/commands/diff.md", "docs/commands/dump.md", "docs/commands/groups.md", "docs/commands/inventory.md",
    "docs/commands/metadata.md", "docs/commands/migrate.md", "docs/commands/mirror-groups.md",
    "docs/commands/mirror-modes.md", "docs/commands/mirror.md", "docs/commands/pipeline.md", "docs/commands/plan.md",
    "docs/commands/produce.md", "docs/commands/rebuild-index.md", "docs/commands/rescue.md",
    "docs/commands/retain.md", "docs/commands/salvage.md", "docs/commands/schema.md", "docs/commands/serve.md",
    "docs/commands/topics-replicas.md", "docs/commands/topics.md", "docs/commands/tour.md",
    "docs/commands/transactions.md", "docs/commands/verify.md", "docs/commands/warm.md",
    "docs/decisions/0001-kernels-and-twins.md", "docs/decisions/0002-compression-libraries.md",
    "docs/decisions/0003-what-is-damage.md", "docs/decisions/0004-protocol-code.md",
    "docs/decisions/0005-conversion-while-sending.md", "docs/decisions/0007-pipeline.md",
    "docs/decisions/0008-no-file-on-the-loop.md", "docs/decisions/0009-copies-with-offsets.md",
    "docs/decisions/0010-writing-rows.md", "docs/decisions/0011-in-sync-replicas.md",
    "docs/decisions/0012-controller.md", "docs/decisions/0013-simulated-world.md",
    "docs/decisions/0014-alone-and-in-a-cluster.md", "docs/decisions/0015-what-handlers-take.md",
    "docs/decisions/0016-znodes.md", "docs/decisions/0017-one-process.md", "docs/decisions/0018-rooms.md",
    "docs/decisions/README.md", "docs/evidence/bounds.md", "docs/evidence/broker-speed.md", "docs/evidence/checks.md",
    "docs/evidence/compaction-speed.md", "docs/evidence/migration.md", "docs/evidence/mirror-proof.md",
    "docs/evidence/mirror-speed.md", "docs/evidence/performance.md", "docs/evidence/plan-predictions.md",
    "docs/formats/README.md", "docs/formats/enriched.md", "docs/formats/internal-topics.md",
    "docs/formats/log-directory.md", "docs/formats/message-v0.md", "docs/formats/message-v1.md",
    "docs/formats/record-batch-v2.md", "docs/guides/client-authors.md", "docs/guides/data-engineers.md",
    "docs/guides/old-logs.md", "docs/guides/operators.md", "docs/guides/protocol-designers.md",
    "docs/internals/append.md", "docs/internals/crash-safety.md", "docs/internals/fuzzing.md",
    "docs/internals/groups.md", "docs/internals/how-to-add.md", "docs/internals/index-files.md",
    "docs/internals/metadata-tree.md", "docs/internals/release.md", "docs/internals/salvage.md",
    "docs/internals/scale.md", "docs/internals/varints.md", "docs/python/api.md", "docs/python/checker.md",
    "docs/python/client.md", "docs/python/testing.md", "docs/reference/compatibility.md",
    "docs/reference/configuration.md", "docs/reference/errors.md", "docs/reference/metrics.md",
    "docs/schema/README.md", "docs/schema/grammar.md", "docs/spark/dataframes.md", "docs/spark/pipeline.md",
    "docs/start/install.md", "docs/start/ten-minutes.md", "docs/start/tour.md",
)  # fmt: skip
"""Pages that have reached the target, and stay there."""
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
)
"""Phrases of the dialect that STYLE's table of before and after replaces, as patterns."""
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


@pytest.mark.parametrize("page", PLAIN)
def test_a_page_that_was_rewritten_stays_plain(page: str) -> None:
    found = percentiles([(ROOT / page).read_text(encoding="utf-8")])
    assert all(map(le, found, TARGET)), f"words in a sentence: {found}, the target is {TARGET}"


@cache
def prose() -> dict[str, str]:
    """Return the text of pages and the comments, docstrings and messages of the package, by path; code in it is cut."""
    texts = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
    for path in sorted((ROOT / "src").rglob("*.py")):
        found = [part for part in _STRING.findall(path.read_text(encoding="utf-8")) if " " in part]
        texts[str(path.relative_to(ROOT))] = "\n".join(found)
    return {path: _CODE.sub("`code`", text) for path, text in texts.items()}


def riddles(riddle: str, text: str) -> list[str]:
    """Return where a text has a riddle, also across lines of a comment or a message."""
    return [match[0] for match in re.finditer(riddle.replace(" ", r'[\s#"]+'), text, re.IGNORECASE)]


def test_a_riddle_is_found_across_lines() -> None:
    assert riddles(r"\bany more\b", "# not any\n    # more") != []
    assert riddles(r"\bany more\b", '"not any "\n    "more"') != []
    assert any(path.startswith("src/") and "Raise CorruptRecordError" in text for path, text in prose().items())


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

"""The pages of tools/make_site.py: no link or anchor is dead, and every page is in a menu."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_tool", ROOT / "tools/make_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_link_of_any_page_is_dead_and_all_pages_are_in_the_menu(site: ModuleType, tmp_path: Path) -> None:
    stage = tmp_path / "pages"
    assert site.stage(stage) == []
    assert (stage / "benchmarks/results/kip_625.svg").is_file()  # the picture of a page that another page links
    site.reference(stage)
    listed = {path for shelf in site.menu(stage) for entries in shelf.values() for path in paths(entries)}
    assert listed == {str(page.relative_to(stage)) for top in ("*.md", "docs/**/*.md") for page in stage.glob(top)}


def test_a_long_word_in_a_table_or_code_breaks_behind_a_dot_and_an_option_nowhere(site: ModuleType) -> None:
    cell = '<td>a_setting_of_topics: <code>--json a.name</code> <a href="log.message.timestamp.type">no</a></td>'
    assert site.breakable(f"<p>log.message.timestamp.type <code>--json</code></p>{cell}") == (
        '<p>log.message.timestamp.type <code><span class="word">--json</span></code></p>'
        "<td>a_<wbr>setting_<wbr>of_<wbr>topics: "
        '<code><span class="word">--json</span> a.name</code> <a href="log.message.timestamp.type">no</a></td>'
    )


def paths(entries: object) -> list[str]:
    if isinstance(entries, str):
        return [entries]
    assert isinstance(entries, list)
    return [path for each in entries for path in (each.values() if isinstance(each, dict) else [each])]


def test_a_dead_link_and_a_dead_anchor_are_found(
    site: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n\n## One `two`!\n\n## One\n\n[a](page.md#one-two) [b](page.md#one-1) [c](page.md#no) [d](no.md)\n"
    )
    monkeypatch.setattr(site, "ROOT", tmp_path)
    monkeypatch.setattr(site, "pages", lambda: [page])
    monkeypatch.setattr(site, "TOP", ())
    assert site.stage(tmp_path / "stage") == ["page.md: page.md#no", "page.md: no.md"]


def test_every_page_can_be_reached_by_links_from_the_readme(site: ModuleType) -> None:
    pages = set(site.pages())
    found, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page in found:
            continue
        found.add(page)
        links = {
            (page.parent / path).resolve() for _, _, path, _ in site._LINK.findall(page.read_text(encoding="utf-8"))
        }
        left += links & pages
    assert sorted(str(page.relative_to(ROOT)) for page in pages - found) == []


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How do I convert a v1 log?", "magicbyte convert tour/logs"),
        ("What happens to headers in v0?", "| headers |"),
        ("How do I use it in pytest?", "kafka_broker"),
        ("Which clients were tested?", "librdkafka"),
        ("What does a crash lose?", "acknowledged"),
    ],
)
def test_the_readme_leads_to_the_answer_of_a_question(site: ModuleType, question: str, answer: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    (row,) = (line for line in readme if f"| {question} |" in line)
    ((_, _, path, anchor),) = site._LINK.findall(row)
    for section in re.split(r"^## ", (ROOT / path).read_text(encoding="utf-8"), flags=re.MULTILINE):
        heading = re.sub(r"[^\w -]", "", section.partition("\n")[0].lower()).replace(" ", "-")
        if anchor in {"", f"#{heading}"} and answer in section:
            return
    pytest.fail(f"{path}{anchor} does not have {answer}")

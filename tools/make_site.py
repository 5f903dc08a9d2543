"""Build the documentation site from the Markdown of the repository. tools/site.sh runs it.

The pages do not depend on the generator. They are copied into build/site-pages at their paths in the repository, with
every file that they link, and with a page of the Python reference for each public module. The generator makes
build/site/VERSION of them. For another generator only `settings` changes.
"""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).parent.parent
STAGE, SITE = ROOT / "build/site-pages", ROOT / "build/site"
TOP: Final = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")
MODULES: Final = (
    "magicbyte",
    "magicbyte.testing",
    "magicbyte.access.client",
    "magicbyte.access.client.admin",
    "magicbyte.engine.errors",
)
"""Modules whose docstrings are the Python reference."""
SHELVES: Final = (
    "start", "guides", "commands", "python", "spark", "broker", "formats", "protocol", "schema", "reference",
    "internals", "decisions", "evidence",
)  # fmt: skip
STYLE: Final = """\
/* A line of code of 120 characters fits, and so do the shelves in the bar. */
.md-grid { max-width: 76rem; }
.md-tabs__item { padding-left: 0.4rem; padding-right: 0.4rem; }
/* A word in a table breaks where `breakable` lets it. What is still too wide scrolls. */
.md-typeset td code { overflow-wrap: normal; word-break: normal; }
.md-typeset .word { white-space: nowrap; }
@media screen and (max-width: 44.98em) {
  .md-typeset table:not([class]) th, .md-typeset table:not([class]) td { min-width: 3rem; padding: 0.5em 0.6em; }
  .md-typeset table:not([class]) td:last-child:nth-child(n+4) { min-width: 9rem; }
  /* Diagrams scroll in their natural size: their text would be too small. */
  .md-typeset p:has(> img) { overflow-x: auto; }
  .md-typeset p > img:not([src$="chart.svg"], [src$="inventory.svg"]) { max-width: none; }
}
"""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")
_FENCE = re.compile(r"^(```\w+) .*$", re.MULTILINE)  # what stands behind the language is for the tests
_CELL_OR_CODE = re.compile(r"<td[ >](?s:.*?)</td>|<code>[^<\n]*</code>")
_TEXT, _WORD = re.compile(r"(?<=>)[^<]+(?=<)"), re.compile(r"\S+")
_BREAK = re.compile(r"(?<=[./:_|,=])(?=[\w/])")
_CELL = re.compile(r"`[^`\n]*`")  # GitHub wants a bar in the code of a table escaped, the generator does not


def pages() -> list[Path]:
    """Return every page of the site, as it lies in the repository."""
    return [ROOT / name for name in TOP if name.endswith(".md")] + sorted((ROOT / "docs").rglob("*.md"))


def stage(target: Path) -> list[str]:
    """Copy all pages below `target`, with all that they link, and what linked Markdown links. Returns the dead links.

    A link to a folder becomes text.
    """
    shutil.rmtree(target, ignore_errors=True)
    dead: list[str] = []
    wanted = {ROOT / name for name in TOP}
    texts: dict[Path, str] = {}
    left = pages()
    while left:
        page = left.pop()
        if page in texts:
            continue
        text = page.read_text(encoding="utf-8")
        for mark, label, path, anchor in _LINK.findall(text):
            if "://" in path:
                continue
            file = (page.parent / path).resolve()
            whole = f"{mark}[{label}]({path}{anchor})"
            if file.is_dir():
                text = text.replace(whole, label)
            elif not file.is_file() or (anchor and file.suffix == ".md" and anchor[1:] not in anchors(file)):
                dead.append(f"{page.relative_to(ROOT)}: {path}{anchor}")
            elif file.suffix == ".md":
                left.append(file)
            else:
                wanted.add(file)
        texts[page] = text
    for file in sorted(wanted - texts.keys()):
        copy = target / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    for page, text in texts.items():
        copy = target / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(_FENCE.sub(r"\1", _CELL.sub(lambda code: code[0].replace(r"\|", "|"), text)), encoding="utf-8")
    return dead


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 0
        while (anchor := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(anchor)
    return found


def reference(target: Path) -> None:
    """Write a page for each public module, which the generator fills from docstrings."""
    folder = target / "docs/python/reference"
    folder.mkdir(parents=True)
    for module in MODULES:
        (folder / f"{module}.md").write_text(f"# {module}\n\n::: {module}\n", encoding="utf-8")
    lines = "".join(f"- [{module}]({module}.md)\n" for module in MODULES)
    (folder / "README.md").write_text(f"# Python reference\n\nFrom the docstrings.\n\n{lines}", encoding="utf-8")


def name_of(page: Path) -> str:
    """Return what a menu calls a page: a command by its name, others by their heading."""
    if page.parent.name == "commands" and page.stem != "README":
        return page.stem
    heading = re.search(r"^# (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert heading, page
    return heading[1].replace("`", "")


def menu(target: Path) -> list[Any]:
    """Return the shelves with their pages, in the order of docs/README.md."""
    found: list[Any] = [{"Home": "README.md"}, {"All documents": "docs/README.md"}]
    for shelf in SHELVES:
        folder = target / "docs" / shelf
        files = sorted(folder.rglob("*.md"), key=lambda file: (file.name != "README.md", file))
        entries = [{name_of(file): str(file.relative_to(target))} for file in files]
        found.append({shelf.capitalize(): entries})
    found.append({"Project": [name for name in TOP[1:] if name.endswith(".md")]})
    return found


def settings(target: Path, version: str) -> dict[str, Any]:
    """Return the generator's settings. JSON is YAML, so nothing else has to be written."""
    palette = [
        {
            "media": f"(prefers-color-scheme: {mode})",
            "scheme": scheme,
            "primary": "indigo",
            "toggle": {"icon": f"material/weather-{icon}", "name": f"switch to {other}"},
        }
        for mode, scheme, icon, other in (("light", "default", "night", "dark"), ("dark", "slate", "sunny", "light"))
    ]
    features = ["navigation.indexes", "navigation.tabs", "content.code.copy"]
    python = {"paths": [str(ROOT / "src")], "options": {"show_source": False, "members_order": "source"}}
    contents = {"toc": {"permalink": True, "slugify": SLUG}}
    return {
        "site_name": "magicbyte",
        "docs_dir": str(target),
        "site_dir": str(SITE / version),
        "use_directory_urls": False,  # opens from a disk as well
        "nav": menu(target),
        "theme": {"name": "material", "font": False, "palette": palette, "features": features},
        "extra_css": ["style.css"],
        "plugins": ["search", {"mkdocstrings": {"handlers": {"python": python}}}],
        "markdown_extensions": ["tables", "fenced_code", contents, "pymdownx.highlight", "pymdownx.superfences"],
        "extra": {"version": {"provider": "mike", "default": version}, "generator": False},
        "exclude_docs": "*.py\n",
        "validation": {"links": {"anchors": "warn", "not_found": "warn"}, "nav": {"omitted_files": "ignore"}},
    }


def breakable(page: str) -> str:
    """Let long words in tables and code break behind a dot or the like, and short ones, such as options, nowhere."""

    def word(found: re.Match[str]) -> str:
        if len(found[0]) > LONG_WORD:
            return _BREAK.sub("<wbr>", found[0])
        return f'<span class="word">{found[0]}</span>' if "-" in found[0] else found[0]

    return _CELL_OR_CODE.sub(lambda cell: _TEXT.sub(lambda text: _WORD.sub(word, text[0]), cell[0]), page)


SLUG: Final = "@SLUG@"
LONG_WORD: Final = 16


def build() -> int:
    """Stage the pages and let the generator make the site of them. Returns its exit status."""
    dead = stage(STAGE)
    if dead:
        sys.stderr.writelines(f"dead link: {each}\n" for each in dead)
        return 1
    reference(STAGE)
    (STAGE / "style.css").write_text(STYLE, encoding="utf-8")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    config = ROOT / "build/mkdocs.yml"
    slug = "!!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}"
    config.write_text(json.dumps(settings(STAGE, version), indent=1).replace(f'"{SLUG}"', slug), encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-f", config], check=False)
    if done.returncode == 0:
        for page in (SITE / version).rglob("*.html"):
            page.write_text(breakable(page.read_text(encoding="utf-8")), encoding="utf-8")
        versions = sorted(path.name for path in SITE.iterdir() if path.is_dir())
        listed = [{"version": each, "title": each, "aliases": []} for each in versions]
        (SITE / "versions.json").write_text(json.dumps(listed), encoding="utf-8")
    return done.returncode


if __name__ == "__main__":
    sys.exit(build())

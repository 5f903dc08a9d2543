"""Make a copy of the tree ready to be built: `python tools/prepare_release.py TREE`. tools/build.sh calls it.

Adds a bill of materials (CycloneDX) that the wheel carries, and the man pages in `man` (tools/man_pages.py). With the
project's address in PROJECT_URL, as release workflows give it, links of the README become absolute, because an index
shows it away from the tree, and the project's metadata get their addresses. The tree itself knows none.
"""

import datetime
import json
import os
import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

SBOM = "magicbyte.cdx.json"
MAN = "man"
LINK = re.compile(r"(!?\[[^\]]*\]\()(?![a-z]+:|#)([^)]+)\)")
BUILT_WITH = ("numba", "llvmlite")


def main(tree: Path) -> None:
    """Change the files of `tree`."""
    project = tree / "pyproject.toml"
    settings = project.read_text()
    (tree / SBOM).write_text(json.dumps(materials(tree), indent=1) + "\n")
    wheel = "[tool.hatch.build.targets.wheel]\n"
    assert settings.count(wheel) == 1
    pages = sorted(each.name for each in (tree / MAN).iterdir())
    shared = "".join(f'"{MAN}/{name}" = "share/man/man1/{name}"\n' for name in pages)
    shared = f"[tool.hatch.build.targets.wheel.shared-data]\n{shared}\n"
    settings = settings.replace(wheel, f'{shared}{wheel}sbom-files = ["{SBOM}"]\n')
    address = os.environ.get("PROJECT_URL", "").rstrip("/")
    if address:
        readme = tree / "README.md"
        readme.write_text(absolute(readme.read_text(), address))
        settings = settings.replace("[project.scripts]\n", f"{addresses(address)}\n[project.scripts]\n", 1)
    project.write_text(settings)


def materials(tree: Path) -> dict[str, Any]:
    """Return what the base install is made of, at the locked versions, and what made its machine code."""
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    lock = (tree / "requirements/light.txt").read_text()
    asked = {name(each) for each in project["dependencies"]}
    of_extras = {name(each) for extra in project["optional-dependencies"].values() for each in extra}
    pinned = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", lock, re.MULTILINE)
    pinned = [(each, number) for each, number in pinned if each not in of_extras]  # the lock has those of a clone, too
    components = [component(each, number) for each, number in pinned]
    components += [component(each, version(each)) | {"scope": "excluded"} for each in BUILT_WITH]  # at build time alone
    root = component(project["name"], project["version"]) | {"type": "application"}
    root["licenses"] = [{"license": {"id": project["license"]}}]
    needed = [f"pkg:pypi/{each}@{number}" for each, number in pinned if each in asked]
    made = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.UTC)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": made.isoformat(), "component": root},
        "components": components,
        "dependencies": [{"ref": root["bom-ref"], "dependsOn": needed}],
    }


def component(package: str, number: str) -> dict[str, Any]:
    """Return the entry of a package of the Python index."""
    address = f"pkg:pypi/{package}@{number}"
    return {"type": "library", "bom-ref": address, "name": package, "version": number, "purl": address}


def name(requirement: str) -> str:
    """Return the package that a requirement is about."""
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower()


def absolute(text: str, address: str) -> str:
    """Return Markdown whose links to files of the tree lead to the project's pages."""

    def whole(link: re.Match[str]) -> str:
        kind = "raw" if link[1].startswith("!") else "blob"
        return f"{link[1]}{address}/{kind}/main/{link[2]})"

    return LINK.sub(whole, text)


def addresses(address: str) -> str:
    """Return the table of a project's addresses."""
    pages = {
        "Homepage": address,
        "Documentation": f"{address}/blob/main/docs/README.md",
        "Changelog": f"{address}/blob/main/CHANGELOG.md",
        "Issues": f"{address}/issues",
        "Source": address,
    }
    return "[project.urls]\n" + "".join(f'{each} = "{page}"\n' for each, page in pages.items())


if __name__ == "__main__":
    main(Path(sys.argv[1]))

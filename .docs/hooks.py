"""Gather the site's pages: the README and docs/ of each package as they are, and a reference page for each room."""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://github.com/ruleworld/ruleworld"
PACKAGES = {
    "ruleworld_data": ("ruleworld-data", "ruleworld-data/src/ruleworld_data"),
    "dynarule": ("dynarule", "dynarule/src/dynarule"),
    "rwbench": ("benchmarks", "benchmarks/src/rwbench"),
}
HOME = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#:\s]+)(#[^)\s]*)?(\))")


def pages() -> list[str]:
    """Return the repository's pages in reading order, as paths below its root."""
    found = list(HOME)
    for folder, _ in PACKAGES.values():
        found.append(f"{folder}/README.md")
        found += sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / folder / "docs").glob("*.md"))
    found.append("benchmarks/leaderboard/README.md")
    return found


def rooms(package: str) -> list[str]:
    """Return a package's public rooms: its sub-packages and top-level modules."""
    folder = ROOT / PACKAGES[package][1]
    names = {path.parent.name for path in folder.glob("*/__init__.py")}
    names |= {path.stem for path in folder.glob("*.py")}
    return sorted(name for name in names if not name.startswith("_") and name not in ("cli", "plugins"))


def reference(package: str) -> dict[str, str]:
    """Return the reference pages of a package: path -> Markdown."""
    return {
        f"reference/{package}/{room}.md": f"# {package}.{room}\n\n::: {package}.{room}\n"
        for room in rooms(package)
    }


def on_config(config):
    """Build the navigation, so that a new page or room needs no second entry."""
    nav = [{"Home": [{_title(page): page} for page in HOME]}]
    for package, (folder, _) in PACKAGES.items():
        own = [{_title(page): page} for page in pages() if page.startswith(f"{folder}/")]
        api = [{Path(page).stem: page} for page in reference(package)]
        nav.append({folder: [*own, {"Reference": api}]})
    config["nav"] = nav
    return config


def on_files(files: Files, config) -> Files:
    """Add the pages, what they show, and the reference."""
    for page in pages():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / page)))
        for target in re.findall(r"!\[[^\]]*\]\(([^)#:\s]+)\)", (ROOT / page).read_text(encoding="utf-8")):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
            if files.get_file_from_path(path) is None:
                files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    for package in PACKAGES:
        for path, text in reference(package).items():
            files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page, config, files: Files) -> str:
    """Let links to files that are no pages lead to the repository."""
    here = posixpath.dirname(page.file.src_uri)

    def link(match: re.Match[str]) -> str:
        before, target, anchor, after = match.groups()
        path = posixpath.normpath(posixpath.join(here, target))
        if files.get_file_from_path(path) is not None or not (ROOT / path).exists():
            return match.group(0)
        if files.get_file_from_path(f"{path}/README.md") is not None:
            return f"{before}{target.rstrip('/')}/README.md{anchor or ''}{after}"
        return f"{before}{REPOSITORY}/blob/main/{path}{anchor or ''}{after}"

    return LINK.sub(link, markdown)


def _title(page: str) -> str:
    first = next(
        line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line.startswith("# ")
    )
    return first.removeprefix("# ").split(":")[0]

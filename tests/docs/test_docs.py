"""Every Python block of the README and the docs runs, file by file, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\s*(make [a-z-]+)", re.MULTILINE)
_ALL = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [path for path in _ALL if _BLOCK.search(path.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "__docs__"}
    for block in _BLOCK.finditer(page.read_text()):
        line = page.read_text()[: block.start()].count("\n") + 1
        exec(compile("\n" * line + block.group(1), str(page), "exec"), scope)


def test_the_make_commands_of_the_readme_exist() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    commands = _COMMAND.findall((ROOT / "README.md").read_text())
    assert {"make demo", "make test"} <= set(commands)
    assert all(command.removeprefix("make ") in targets for command in commands)


def test_the_readme_has_blocks_to_run() -> None:
    assert ROOT / "README.md" in PAGES

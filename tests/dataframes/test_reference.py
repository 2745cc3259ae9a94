"""The page on data frames says what the declarations say."""

from __future__ import annotations

import inspect
from pathlib import Path

from slime_store import dataframes
from slime_store.dataframes.reference import FRAMES, page

PAGE = Path(__file__).parents[2] / "docs" / "dataframes.md"


def test_the_page_is_the_one_that_the_declarations_make() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python -m slime_store.dataframes.reference > docs/dataframes.md"


def test_every_function_has_a_declaration_and_every_declaration_a_function() -> None:
    functions = {name for name in dataframes.__all__ if inspect.isfunction(getattr(dataframes, name))}
    assert functions == {frame.name for frame in FRAMES}


def test_names_are_unique_in_a_frame() -> None:
    for frame in FRAMES:
        names = [column.name for column in frame.columns]
        assert len(set(names)) == len(names), frame.name

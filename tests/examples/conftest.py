"""Puts the examples on the path, as running one of them does."""

from __future__ import annotations

import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

sys.path.insert(0, str(EXAMPLES))

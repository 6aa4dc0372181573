"""Where tests find what is not Python: the documents, the examples, cases and golden files."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
TESTS = ROOT / "tests"

"""The tree is the architecture: what import-linter cannot say of it is checked here."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from tests.paths import ROOT, TESTS

SOURCE = ROOT / "src" / "kasen"
PACKAGES = sorted(file.parent for file in SOURCE.rglob("__init__.py"))
KERNELS = sorted(file for file in SOURCE.rglob("kernels/[!_]*.py"))
#: Folders of tests that are about everything at once, or about no code.
WITHOUT_SOURCE = {"cases", "docs", "examples", "fuzz", "oracle", "plans", "random_apps", "stanford"}
#: The most files a reader takes in at a glance.
MOST_FILES = 16


def name(folder: Path) -> str:
    return folder.relative_to(SOURCE.parent).as_posix()


@pytest.mark.parametrize("package", PACKAGES, ids=name)
def test_a_package_is_small_and_says_what_lives_there(package: Path) -> None:
    assert len(list(package.glob("*.py"))) <= MOST_FILES
    assert ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8")))


@pytest.mark.parametrize("kernel", KERNELS, ids=name)
def test_a_kernel_imports_other_kernels_and_nothing_else_of_kasen(kernel: Path) -> None:
    imported = [
        node.module
        for node in ast.walk(ast.parse(kernel.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("kasen")
    ]
    assert [module for module in imported if "kernels" not in module.split(".")] == []


def test_tests_mirror_the_source() -> None:
    folders = {file.parent.relative_to(TESTS) for file in TESTS.rglob("*.py")}
    strays = [
        folder
        for folder in folders
        if folder.parts and folder.parts[0] not in WITHOUT_SOURCE and not (SOURCE / folder).is_dir()
    ]
    assert strays == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    files = set(re.findall(r"`([\w/]+/\w+\.py)`", text))
    strays = [file for file in files if not ((SOURCE / file).is_file() or (ROOT / file).is_file())]
    dotted = set(re.findall(r"\bkasen\.(?:engine|runtime|spark|plan|connect|ha|cql)(?:\.[a-z_]+)+", text))
    strays += [module for module in dotted if importlib.util.find_spec(module) is None]
    assert sorted(strays) == []

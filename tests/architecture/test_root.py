"""The root holds the folders that are known, and nowhere is there a drawer for what has no name."""

from pathlib import Path

from .tree import CODE, ROOT, modules

WITH_PYTHON = {*CODE, "migrations", "tests"}
DRAWERS = {"src", "scripts", "utils", "helpers", "common", "base", "manager"}


def root_folders() -> list[Path]:
    """Visible folders of the root; caches and environments hide behind a dot or an underscore."""
    return [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith((".", "__"))]


def test_python_lives_in_the_known_folders():
    holding = {folder.name for folder in root_folders() if any(folder.rglob("*.py"))}
    assert holding <= WITH_PYTHON, "A new root folder needs a layer in the import contracts first"


def test_no_python_lies_loose_in_the_root():
    assert not list(ROOT.glob("*.py"))


def test_no_root_folder_is_a_drawer():
    assert not DRAWERS & {folder.name for folder in root_folders()}


def test_no_module_is_a_drawer():
    drawers = [module for module in modules() if DRAWERS & set(Path(module).with_suffix("").parts)]
    assert not drawers, f"Name it after what it knows: {drawers}"

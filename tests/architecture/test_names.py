"""Our six import names are ours: `agents` is also what another well-known distribution calls its package."""

from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest

from .tree import CODE, ROOT


@pytest.mark.parametrize("name", CODE)
def test_no_other_distribution_brings_our_name(name):
    foreign = set(packages_distributions().get(name, ())) - {"twelvefold"}
    assert not foreign, f"{foreign} also installs a package {name!r}; uninstall it from this environment"


@pytest.mark.parametrize("name", CODE)
def test_our_name_is_found_inside_the_project(name):
    spec = find_spec(name)
    assert spec is not None and spec.origin is not None, f"{name} is not a package that Python can find"
    assert Path(spec.origin).is_relative_to(ROOT / name)

"""What is installed is what was meant: one distribution, three import packages, one command."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, PathDistribution, distribution, distributions, packages_distributions
from pathlib import Path

import pytest

from proxy.pages import SHELL, assets

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PACKAGES = {"proxy", "config", "observability"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.Path:
    """The wheel that this tree makes."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return zipfile.Path(built)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.Path) -> Distribution:
    (folder,) = (entry for entry in wheel.iterdir() if entry.name.endswith(".dist-info"))
    return PathDistribution(folder)


def test_the_wheel_brings_three_import_packages_and_nothing_else_at_the_top(wheel: zipfile.Path) -> None:
    top = {entry.name for entry in wheel.iterdir() if not entry.name.endswith(".dist-info")}
    assert top == PACKAGES


def test_the_command_is_the_only_entry_point(metadata: Distribution) -> None:
    assert metadata.metadata["Name"] == "saltgate"
    assert [(entry.group, entry.name, entry.value) for entry in metadata.entry_points] == [
        ("console_scripts", "saltgate", "proxy.cli:main")
    ]


def test_the_entry_point_can_be_called(metadata: Distribution) -> None:
    (entry,) = metadata.entry_points
    assert callable(entry.load())


def test_no_package_can_be_run_as_a_module(wheel: zipfile.Path) -> None:
    """The distribution proxy.py starts an open forward proxy by `python -m proxy`: never let people write that."""
    assert not any((wheel / package / "__main__.py").exists() for package in PACKAGES)


def test_each_package_says_that_it_is_typed(wheel: zipfile.Path) -> None:
    assert all((wheel / package / "py.typed").exists() for package in PACKAGES)


def test_the_wheel_carries_the_licence_the_example_and_the_reference(
    wheel: zipfile.Path, metadata: Distribution
) -> None:
    assert metadata.metadata["License-Expression"] == "Apache-2.0"
    assert (wheel / "config" / "saltgate.example.toml").exists()
    assert (wheel / "config" / "reference.md").exists()
    assert any(entry.name == "licenses" for entry in wheel.iterdir() for entry in entry.iterdir() if entry.is_dir())


def test_the_wheel_carries_the_pages(wheel: zipfile.Path) -> None:
    carried = {entry.name for entry in (wheel / "proxy" / "pages" / "assets").iterdir()}
    assert carried == set(assets())
    assert not any(entry.name.endswith(".png") for entry in (wheel / "proxy" / "pages").iterdir())
    assert {SHELL, "app.js", "style.css", "words.en.js", "words.ja.js"} <= carried


def test_nothing_but_saltgate_owns_its_import_packages() -> None:
    """Distributions named `config` and `proxy.py` overwrite ours without a word where they share an environment."""
    if all(found.metadata["Name"] != "saltgate" for found in distributions()):
        pytest.skip("saltgate is not installed in this environment")
    origin = json.loads(distribution("saltgate").read_text("direct_url.json") or "{}")
    owners = {package: set(packages_distributions().get(package, [])) for package in PACKAGES}
    expected = set() if origin.get("dir_info", {}).get("editable") else {"saltgate"}
    assert all(owner <= {"saltgate"} and owner >= expected for owner in owners.values()), owners

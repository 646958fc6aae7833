"""A disk that is really full: what was let in is told of when there is room again, and nothing is torn."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from observability.audit.acts import Unaccountable
from tests.observability.audit.writing import (
    audit,
    faults,
    request,
    requests,
    settled,
    until,
    verdict,
    written,
)

pytestmark = pytest.mark.slow

LIMITED = """
import resource, sys
from pathlib import Path
from observability.audit.acts import Unaccountable
from tests.observability.audit.writing import *

place = Path(sys.argv[1])
with audit(place, slots=8) as one:
    request(one)
    settled(one)
    size = files(place)[0].stat().st_size
    journal = next(place.glob("*.journal")).stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (max(size + 300, 1), resource.RLIM_INFINITY))
    let_in = 0
    for _ in range(50):
        try:
            request(one)
            let_in += 1
        except Unaccountable:
            pass
    until(lambda: not one.state().up)
    assert let_in <= 8, let_in
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    until(lambda: one.state().up)
    request(one)
print(let_in + 2, file=sys.stderr)
"""


def test_a_limit_in_the_middle_of_a_line_tears_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path.cwd(), check=False)
    assert done.returncode == 0, done.stderr
    let_in = int(done.stderr.split()[-1])
    lines = requests(tmp_path)
    assert verdict(tmp_path).intact, faults(tmp_path)
    assert len([line for line in lines if line["event"] == "request.granted"]) == let_in
    assert len({line["request_id"] for line in lines}) == len(lines)
    assert "audit.resumed" in [line["event"] for line in written(tmp_path)]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    mounted = tmp_path / "small"
    mounted.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mounted)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (subprocess.CalledProcessError, FileNotFoundError):
        pytest.skip("nobody may mount here")
    yield mounted
    subprocess.run(["umount", str(mounted)], check=False)


def test_a_file_system_that_is_full_refuses_until_there_is_room(small: Path) -> None:
    place, ballast = small / "audit", small / "ballast"
    with audit(place, slots=16) as one:
        request(one)
        settled(one)
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 1024)
        let_in = 1
        with suppress(Unaccountable):
            while True:
                request(one)
                let_in += 1
        until(lambda: not one.ready)
        assert let_in <= 40
        ballast.unlink()
        until(lambda: one.ready)
    assert verdict(place).intact, faults(place)
    granted = [line for line in requests(place) if line["event"] == "request.granted"]
    assert len(granted) == len({line["request_id"] for line in granted}) == let_in

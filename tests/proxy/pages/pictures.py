"""Takes the pictures of the pages for the documents: `make pictures`. They show `day.Day`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.parts.chromium_profiles import Chromium, open_chromium
from tests.proxy.pages.day import Day
from tests.proxy.pages.looking import DRAWN, DRAWN_SCOPE, person
from tests.proxy.pages.served import Desk, served_pages

FOLDER: Final = Path(__file__).parents[3] / "proxy" / "pages"
MOST_BYTES: Final = 150_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One picture: `open_row` is the request whose details are shown."""

    name: str
    path: str
    until: str
    height: int
    theme: str = "light"
    language: str = "en"
    open_row: int | None = None


SCENES: Final = (
    Scene(name="overview-light", path="/?window=6h", until=DRAWN, height=960),
    Scene(name="overview-dark", path="/?window=6h", until=DRAWN, height=960, theme="dark"),
    Scene(name="overview-japanese", path="/?window=6h", until=DRAWN, height=960, language="ja"),
    Scene(name="scope", path="/scopes/acme/hermes?window=6h", until=DRAWN_SCOPE, height=1240, open_row=3),
)


async def take(chromium: Chromium, desk: Desk, scene: Scene) -> Path:
    """The picture's file, with few colours: nothing on the pages is a photograph."""
    somebody = await person(chromium, width=1440, height=scene.height, language=scene.language)
    await somebody.prefers(prefers_color_scheme=scene.theme, prefers_reduced_motion="reduce")
    await somebody.ask("Emulation.setScrollbarsHidden", hidden=True)
    await somebody.page.go(desk.url + scene.path)
    await somebody.page.until(f"{scene.until} && document.fonts.status === 'loaded'")
    if scene.open_row is not None:
        await somebody.page.asked(f"document.querySelectorAll('.recent button.open')[{scene.open_row}].click()")
        await somebody.page.asked("getSelection().removeAllRanges()")
    await asyncio.sleep(0.5)  # charts know their width in the next frame
    file = FOLDER / f"{scene.name}.png"
    await somebody.picture(file)
    subprocess.run(
        ["pngquant", "--force", "--skip-if-larger", "--strip", "--speed", "1", "--output", file, "128", file],
        check=True,
    )
    return file


async def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        async with served_pages() as desk, open_chromium(Path(folder)) as chromium:
            desk.told = Day()
            files = [await take(chromium, desk, scene) for scene in SCENES]
    for file in files:
        print(f"{file.relative_to(FOLDER.parents[1])}: {file.stat().st_size} bytes")
    return int(any(file.stat().st_size >= MOST_BYTES for file in files))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

"""The `local` issuer of one PC: where it keeps its owner, and what he is told at the first start."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from config.settings import Settings

OWNER: Final = "owner"


def local_folder(settings: Settings, configuration: Path, port: int) -> Path:
    """The state of the local issuer at this port: another port is another issuer, with an owner of its own."""
    return (settings.directory.state or configuration.absolute().parent) / f"local-issuer-{port}"


def tell_new_owner(issuer: str, subject: str, password: str) -> None:
    """The one time that the password is shown."""
    sys.stderr.write(
        f"saltgate: the local issuer {issuer} has a new owner. The password is shown this once.\n"
        f"saltgate:   sign in as  {OWNER}\n"
        f"saltgate:   password    {password}\n"
        f"saltgate:   member      user:{subject}\n"
    )
    sys.stderr.flush()

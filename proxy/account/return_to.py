"""Where a person goes after the sign-in: a page of ours, or the account. Pure."""

from __future__ import annotations

import re
from typing import Final

ACCOUNT: Final = "/account"

# Every path that we have can be written with these. What could be decoded, folded or resolved into another address is
# not among them: no percent sign, backslash, colon, at sign, no empty segment and none that begins with a dot.
_SEGMENT: Final = r"[A-Za-z0-9_~-][A-Za-z0-9_.~-]*"
_PAGE: Final = re.compile(rf"/(?:{_SEGMENT}/)*(?:{_SEGMENT})?(?:\?[A-Za-z0-9_.~=&-]*)?")
_MAXIMUM_CHARACTERS: Final = 200


def return_path(wanted: str | None) -> str:
    """The path that was asked for where it can only be one of this site, else the account's.

    Never one under /auth/: a sign-in that leads to a sign-in has no end.
    """
    if wanted is None or len(wanted) > _MAXIMUM_CHARACTERS or not _PAGE.fullmatch(wanted):
        return ACCOUNT
    return ACCOUNT if wanted == "/" or wanted.startswith("/auth") else wanted

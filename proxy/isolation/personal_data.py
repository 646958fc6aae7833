"""The named set "personal-data": what points at one person and can be told from other text with few false alarms.

Left out on purpose: names and addresses (the words of a rule find those that matter), IP addresses (they are in every
log), dates of birth, and national ids that are mere numbers, such as the German Steuer-ID or the Dutch BSN.
"""

from __future__ import annotations

import re
from typing import Final

from config.expressions import Expression
from proxy.isolation.check_digits import (
    is_cpf,
    is_dni,
    is_fiscal_code,
    is_iban,
    is_nir,
    is_payment_card,
    is_resident_id,
)
from proxy.isolation.detectors import Detector
from proxy.isolation.named_set import Entry

# What is around a number or code that is no part of a longer one. A match holds it as well.
_BEFORE: Final = r"(?:^|[^0-9A-Za-z_])"
_BEHIND: Final = r"(?:[^0-9A-Za-z_]|$)"
_GAP: Final = "[ .-]"
_NOT_ASCII: Final = r"\x{80}-\x{10FFFF}"
_ADDRESS: Final = rf"0-9A-Za-z._%+'{_NOT_ASCII}-"

# RFC 2606: addresses under these belong to nobody. `git@` is how hosts of repositories are written.
_NOBODYS: Final = (".example", ".test", ".invalid", ".localhost", "example.com", "example.net", "example.org")
_GIT: Final = re.compile(r"(?:^|[^\w.%+'-])git$")
_FEWEST_PHONE_DIGITS: Final = 10


def _is_somebodys_address(match: str) -> bool:
    name, _, host = match.casefold().partition("@")
    return not _GIT.search(name) and not host.endswith(_NOBODYS)


def _is_phone_number(match: str) -> bool:
    # E.164: at most 15 digits with the country's; below ten, version numbers and sums look the same. A diff's added
    # line that begins with a date is none.
    number = match[match.index("+") :]
    digits = sum(map(str.isdigit, number))
    return _FEWEST_PHONE_DIGITS <= digits <= 15 and not _DATED_LINE.is_in(number.encode())


_DATED_LINE: Final = Expression(r"^\+(?:19|20)[0-9]{2}-[0-9]{2}-[0-9]{2}")


def _is_social_security_number(match: str) -> bool:
    area, group, serial = match.strip("".join(set(match) - set("0123456789-"))).strip("-").split("-")
    return area not in ("000", "666") and area < "900" and group != "00" and serial != "0000"


PERSONAL_DATA: Final = (
    Entry(
        "e-mail addresses",
        "RFC 5321 as people write it; not those of RFC 2606's example domains, and not git@host",
        Detector(
            Expression(
                rf"(?:^|[^{_ADDRESS}])[{_ADDRESS}]+@(?:[0-9A-Za-z{_NOT_ASCII}-]+\.)+[A-Za-z{_NOT_ASCII}]{{2}}[A-Za-z{_NOT_ASCII}]*"
            ),
            _is_somebodys_address,
        ),
    ),
    Entry(
        "phone numbers in international form",
        "E.164: + and 10 to 15 digits; a national form is any number",
        Detector(
            Expression(r"(?:^|[^0-9A-Za-z_+])\+[1-9](?:[ .()/-]{0,3}[0-9]){7,16}" + _BEHIND),
            _is_phone_number,
        ),
    ),
    Entry(
        "IBANs",
        "ISO 13616: the country's length and the check digits (mod 97) must be right",
        Detector(
            Expression(r"(?i)" + _BEFORE + r"[A-Z]{2}[0-9]{2}(?:[ -]?[0-9A-Z]){11,30}"),
            is_iban,
        ),
    ),
    Entry(
        "payment cards",
        "ISO/IEC 7812: a network's prefix and length, grouped as on a card or not at all, and the Luhn digit",
        Detector(
            Expression(
                r"(?:^|[^0-9])(?:[0-9]{13,19}"
                rf"|[0-9]{{4}}{_GAP}[0-9]{{4}}{_GAP}[0-9]{{4}}{_GAP}[0-9]{{1,4}}(?:{_GAP}[0-9]{{3}})?"
                rf"|[0-9]{{4}}{_GAP}[0-9]{{6}}{_GAP}[0-9]{{4,5}})(?:[^0-9]|$)"
            ),
            is_payment_card,
        ),
    ),
    Entry(
        "US social security numbers",
        "three groups with hyphens, without the areas, groups and serials that are never given (SSA)",
        Detector(
            Expression(r"(?:^|[^0-9A-Za-z_-])[0-9]{3}-[0-9]{2}-[0-9]{4}(?:[^0-9A-Za-z_-]|$)"),
            _is_social_security_number,
        ),
    ),
    Entry(
        "UK national insurance numbers",
        "HMRC NIM39110: two letters of a limited set, six digits, A to D",
        Detector(
            Expression(_BEFORE + "[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?[0-9]{2} ?[0-9]{2} ?[0-9]{2} ?[A-D]" + _BEHIND),
        ),
    ),
    Entry(
        "Spanish DNI and NIE",
        "eight digits, or X, Y, Z and seven, and the letter that they give (mod 23)",
        Detector(Expression(_BEFORE + "(?:[0-9]{8}|[XYZ]-?[0-9]{7})-?[A-HJ-NP-TV-Z]" + _BEHIND), is_dni),
    ),
    Entry(
        "Italian fiscal codes",
        "16 characters, the last of which is given by the others (decree of 23 December 1976)",
        Detector(
            Expression(r"(?i)" + _BEFORE + "[A-Z]{6}[0-9]{2}[A-EHLMPR-T][0-9]{2}[A-Z][0-9]{3}[A-Z]" + _BEHIND),
            is_fiscal_code,
        ),
    ),
    Entry(
        "French NIR",
        "15 digits with a sex and a month, and the key of two digits (mod 97)",
        Detector(
            Expression(
                _BEFORE
                + "[12] ?[0-9]{2} ?(?:0[1-9]|1[0-2]|[2-9][0-9]) ?[0-9][0-9AB] ?[0-9]{3} ?[0-9]{3} ?[0-9]{2}"
                + _BEHIND
            ),
            is_nir,
        ),
    ),
    Entry(
        "Brazilian CPF",
        "in its written form 000.000.000-00, with both check digits right",
        Detector(Expression(_BEFORE + r"[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}" + _BEHIND), is_cpf),
    ),
    Entry(
        "Chinese resident ids",
        "GB 11643: 18 characters with a date of birth in them and the check digit of ISO 7064",
        Detector(
            Expression(
                _BEFORE
                + "[1-9][0-9]{5}(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])[0-9]{3}[0-9Xx]"
                + _BEHIND
            ),
            is_resident_id,
        ),
    ),
)

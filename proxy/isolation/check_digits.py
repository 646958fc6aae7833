"""Numbers that carry their own check: whether what looks like one is one. Separators around and inside are allowed."""

from __future__ import annotations

from typing import Final

_DIGITS: Final = frozenset("0123456789")


def _characters(match: str) -> str:
    """The ASCII letters and digits of the match, in capitals."""
    return "".join(c for c in match if c.isascii() and c.isalnum()).upper()


def has_luhn_digit(digits: str) -> bool:
    """ISO/IEC 7812-1 annex B."""
    doubled = (int(digit) * 2 for digit in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + sum(d - 9 if d > 9 else d for d in doubled)) % 10 == 0


# Prefixes from … to, and the lengths that the network gives. Maestro's would take in too many other numbers.
_NETWORKS: Final = (
    ("4", "4", (13, 16, 19)),  # Visa
    ("51", "55", (16,)),  # Mastercard
    ("2221", "2720", (16,)),  # Mastercard
    ("34", "34", (15,)),  # American Express
    ("37", "37", (15,)),  # American Express
    ("6011", "6011", (16, 19)),  # Discover
    ("644", "659", (16, 19)),  # Discover
    ("3528", "3589", (16, 19)),  # JCB
    ("300", "305", (14,)),  # Diners Club
    ("36", "36", (14,)),  # Diners Club
    ("38", "39", (14,)),  # Diners Club
    ("62", "62", (16, 17, 18, 19)),  # UnionPay
)


def is_payment_card(match: str) -> bool:
    """A number of a payment network with its Luhn digit."""
    digits = "".join(c for c in match if c in _DIGITS)
    return (
        any(len(digits) in lengths and first <= digits[: len(first)] <= last for first, last, lengths in _NETWORKS)
        and len(set(digits)) > 1
        and has_luhn_digit(digits)
    )


# The IBAN registry, release 99: how long an IBAN of each country is.
_IBAN_LENGTHS: Final = {
    country: length
    for length, countries in {
        15: "NO", 16: "BE", 18: "DK FK FI FO GL NL SD", 19: "MK SI",
        20: "AT BA EE KZ LT LU MN XK", 21: "CH HR LI LV", 22: "BG BH CR DE GB GE IE ME RS VA",
        23: "AE GI IL IQ OM SO TL", 24: "AD CZ ES MD PK RO SA SE SK TN VG", 25: "LY PT ST",
        26: "IS TR", 27: "BI DJ FR GR IT MC MR SM", 28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
        29: "BR EG PS QA UA", 30: "JO KW MU YE", 31: "MT SC", 32: "LC", 33: "RU",
    }.items()
    for country in countries.split()
}  # fmt: skip


def is_iban(match: str) -> bool:
    """ISO 13616 and ISO 7064 MOD 97-10. What follows the country's length is other text."""
    characters = _characters(match)
    length = _IBAN_LENGTHS.get(characters[:2])
    if length is None or len(characters) < length:
        return False
    iban = characters[:length]
    return int("".join(str(int(c, 36)) for c in iban[4:] + iban[:4])) % 97 == 1


_DNI_LETTERS: Final = "TRWAGMYFPDXBNJZSQVHLCKE"


def is_dni(match: str) -> bool:
    """Real Decreto 1553/2005: the letter is the number modulo 23; X, Y, Z of an NIE stand for 0, 1, 2."""
    characters = _characters(match)
    number = characters[:-1].translate(str.maketrans("XYZ", "012"))
    return characters[-1] == _DNI_LETTERS[int(number) % 23]


# Agenzia delle Entrate: the values of characters at odd places, of 0-9 (as A-J) and A-Z.
_ODD_VALUES: Final = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)


def is_fiscal_code(match: str) -> bool:
    """The Italian codice fiscale's last letter."""
    characters = _characters(match)
    values = [int(c, 36) - (0 if c.isdigit() else 10) for c in characters[:15]]
    total = sum(_ODD_VALUES[value] for value in values[::2]) + sum(values[1::2])
    return characters[15] == chr(ord("A") + total % 26)


def is_nir(match: str) -> bool:
    """INSEE: the key is 97 less the number modulo 97; 2A and 2B of Corsica count as 19 and 18."""
    characters = _characters(match)
    number = characters[:5] + characters[5:7].replace("2A", "19").replace("2B", "18") + characters[7:13]
    return number.isdigit() and 97 - int(number) % 97 == int(characters[13:])


def is_cpf(match: str) -> bool:
    """Receita Federal: two digits modulo 11, each over all before it; eleven equal digits are never given."""
    digits = [int(c) for c in match if c in _DIGITS]
    return len(set(digits)) > 1 and all(
        sum(digit * weight for digit, weight in zip(digits[:n], range(n + 1, 1, -1), strict=True)) * 10 % 11 % 10
        == digits[n]
        for n in (9, 10)
    )


def is_resident_id(match: str) -> bool:
    """GB 11643 and ISO 7064 MOD 11-2."""
    characters = _characters(match)
    total = sum(int(digit) * pow(2, 17 - place, 11) for place, digit in enumerate(characters[:17]))
    return characters[17] == "10X98765432"[total % 11]

"""Numbers that say of themselves whether they are real: check digits, dates and prefixes that are given out."""

from __future__ import annotations

from datetime import date

_CHINESE_ID_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_CHINESE_ID_DIGITS = "10X98765432"
_PROVINCES = frozenset(
    str(code)
    for first, last in ((11, 15), (21, 23), (31, 37), (41, 46), (50, 54), (61, 65), (71, 71), (81, 83))
    for code in range(first, last + 1)
)
_IBAN_LENGTHS = {
    **dict.fromkeys(("NO",), 15),
    **dict.fromkeys(("BE",), 16),
    **dict.fromkeys(("DK", "FI", "FO", "GL", "NL", "SD"), 18),
    **dict.fromkeys(("MK", "SI"), 19),
    **dict.fromkeys(("AT", "BA", "EE", "KZ", "LT", "LU", "XK"), 20),
    **dict.fromkeys(("CH", "CR", "HR", "LI", "LV"), 21),
    **dict.fromkeys(("BG", "BH", "DE", "GB", "GE", "IE", "ME", "RS", "VA"), 22),
    **dict.fromkeys(("AE", "GI", "IL", "IQ", "OM", "SO", "TL"), 23),
    **dict.fromkeys(("AD", "CZ", "ES", "MD", "PK", "RO", "SA", "SE", "SK", "TN", "VG"), 24),
    **dict.fromkeys(("LY", "PT", "ST"), 25),
    **dict.fromkeys(("IS", "TR"), 26),
    **dict.fromkeys(("BI", "DJ", "FR", "GR", "IT", "MC", "MR", "SM"), 27),
    **dict.fromkeys(("AL", "AZ", "BY", "CY", "DO", "GT", "HU", "LB", "PL", "SV"), 28),
    **dict.fromkeys(("BR", "EG", "PS", "QA", "UA"), 29),
    **dict.fromkeys(("JO", "KW", "MU"), 30),
    **dict.fromkeys(("MT", "SC"), 31),
    **dict.fromkeys(("LC",), 32),
    **dict.fromkeys(("RU",), 33),
}
"""Characters of an IBAN by country, from the SWIFT registry."""


def is_chinese_id(number: str) -> bool:
    """Whether 18 characters are a Chinese identity number: province, date of birth, check digit (GB 11643-1999)."""
    if len(number) != 18 or number[:2] not in _PROVINCES or not number[:17].isdecimal():
        return False
    try:
        born = date(int(number[6:10]), int(number[10:12]), int(number[12:14]))
    except ValueError:
        return False
    total = sum(int(digit) * weight for digit, weight in zip(number[:17], _CHINESE_ID_WEIGHTS, strict=True))
    return 1900 <= born.year < 2100 and number[17].upper() == _CHINESE_ID_DIGITS[total % 11]


def is_us_social_security_number(area: str, group: str, serial: str) -> bool:
    """Whether the three parts are ones that have been given out."""
    return area not in ("000", "666") and area < "900" and group != "00" and serial != "0000"


def is_iban(number: str) -> bool:
    """Whether a text without blanks is an IBAN: length of its country, remainder 1 modulo 97 (ISO 13616)."""
    if _IBAN_LENGTHS.get(number[:2]) != len(number) or not number.isascii():
        return False
    moved = number[4:] + number[:4]
    return moved.isalnum() and int("".join(str(int(character, 36)) for character in moved)) % 97 == 1


def passes_luhn(digits: str) -> bool:
    """Whether the last digit is the check digit of ISO/IEC 7812-1 (Luhn)."""
    doubled = (2 * int(digit) for digit in digits[-2::-2])
    total = sum(int(digit) for digit in digits[::-2]) + sum(value - 9 * (value > 9) for value in doubled)
    return total % 10 == 0


def is_payment_card(digits: str) -> bool:
    """Whether digits have the prefix and length of a card network, and the check digit."""
    size, two, three, four = len(digits), digits[:2], digits[:3], digits[:4]
    known = (
        (digits[0] == "4" and size in (13, 16, 19))  # Visa
        or (("51" <= two <= "55" or "2221" <= four <= "2720") and size == 16)  # Mastercard
        or (two in ("34", "37") and size == 15)  # American Express
        or (two == "62" and 16 <= size <= 19)  # UnionPay
        or ((four == "6011" or two == "65" or "644" <= three <= "649") and size == 16)  # Discover
        or ("3528" <= four <= "3589" and size == 16)  # JCB
        or ((two in ("36", "38") or "300" <= three <= "305") and size == 14)  # Diners Club
    )
    return known and len(set(digits)) > 2 and passes_luhn(digits)

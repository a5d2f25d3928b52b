"""Phone numbers, identity numbers, cards and addresses of machines among rows of digits."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator

from stoker.data.personal_data.check_digits import (
    is_chinese_id,
    is_iban,
    is_payment_card,
    is_us_social_security_number,
)
from stoker.recipe.personal_data import PersonalKind

Found = tuple[int, int, PersonalKind]
"""First character, one past the last, and what it is."""

_ALONE = r"(?<![\w.\-])"
_ENDS = r"(?![\w\-]|\.\d)"
_CHINESE_ID = re.compile(r"(?<![A-Za-z0-9_.\-])[1-8][0-9]{16}[0-9Xx](?![A-Za-z0-9_\-]|\.\d)")
_CARD = re.compile(r"(?<![A-Za-z0-9_.\-])[2-6][0-9]{3}(?:[ -]?[0-9]){9,15}(?![A-Za-z0-9_\-]|\.\d| [0-9])")
_CARD_CONTEXT = re.compile(
    r"(?i)\b(?:card|visa|mastercard|amex|unionpay|cc)\b|卡号|卡號|银行卡|銀行卡|信用卡|储蓄卡"
)
_SSN = re.compile(_ALONE + r"([0-9]{3})-([0-9]{2})-([0-9]{4})" + _ENDS)
_IPV4 = re.compile(r"(?<![\w.\-/:])([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})(?![\w\-]|\.\w)")
_VERSION_BEFORE = re.compile(
    r"(?i)(?:(?:\bv|version|ver\.?|release|rev\.?|版本|section|§|oid)[\s:=]*|[<>=~]=\s*"
    r"|\b(?:new|changes) in [\w+.\-]+ +|\b(?:up|down)(?:dated?|graded?) to +|[升降]级[到至为] *)$"
)
_FRACTION_BEFORE = re.compile(r"(?<![\w.])-?\d*\.\d+(?:-\d*\.\d+)*[ ,]$")
_FRACTION_BEHIND = re.compile(r"[ ,\-]-?(?!\d+(?:\.\d+){3})\d*\.\d")
"""Between two fractions four numbers with dots are coordinates of a drawing, written without blanks."""
_NORTH_AMERICA = re.compile(
    r"(?<![\w.\-+])(?<!\d )(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}([-. ]))[2-9][0-9]{2}(?(1)\1|[-. ])[0-9]{4}"
    r"(?![\w\-]|\.\d|[ ,]\d)"
)
_INTERNATIONAL = re.compile(
    r"(?<![\w+\-=*/^)\]}])\+"
    r"(?:[1-9][0-9]{0,2}(?:[ .\-]?\([0-9]{1,5}\))?(?:[ .\-][0-9]{2,8}){1,6}|([1-9][0-9]{7,14}))"
    r"(?![\w\-]|\.\d)"
)
_CHINESE_MOBILE = re.compile(
    r"(?<![A-Za-z0-9_.\-+=*/])(?:86[- ]?)?(1(?:3[0-9]|4[5-9]|5[0-35-9]|6[2567]|7[0-8]|8[0-9]|9[0-35-9]))"
    r"([- ]?)[0-9]{4}\2[0-9]{4}(?![A-Za-z0-9_\-]|\.\d|[ ,]\d)"
)
_CHINESE_LANDLINE = re.compile(
    r"(?<![A-Za-z0-9_.\-+])(?:\(0(?:10|2[0-9]|[3-9][0-9]{2})\) ?|0(?:10|2[0-9]|[3-9][0-9]{2})[- ])[2-8][0-9]{6,7}"
    r"(?![A-Za-z0-9_\-]|\.\d)"
)
_TOLD_PHONE = re.compile(
    r"(?i)(?:tel|phone|mobile|cell|call|whatsapp|fax|contact|电话|電話|手机|手機|联系|聯繫|热线|微信|致电|传真)"
)
_TOLD_DIRECTLY = re.compile(
    r"(?i)(?:\b(?:tele)?(?:phone|fax|fon)|\btel|\bt[ée]l[ée](?:phone|fono|fone|fon|fax)|\bmobile|\bcell|电话|電話|手机|手機"
    r"|传真|傳真)(?: ?(?:number|no)\.?|号码?|號碼?)?(?:\. ?:?| ?[:：]|(?<=[\u4e00-\u9fff]))\s?\(?$"
)
_NATIONAL = re.compile(r"(?:[0-9]{2,5}\)[ \-]?)?[0-9]{2,8}(?:[ .\-][0-9]{2,8}){0,5}(?![\w\-]|\.\d|[ ,]\d)")
"""As people write numbers where they live; believed only behind a word for telephone."""
_NO_NATIONAL = re.compile(
    r"(?:1?[ \-]?8(?:00|33|44|55|66|77|88)|400)[ \-.]"
    r"|(?:19|20)[0-9]{2}[ .\-]?(?:[01][0-9](?:[ .\-]?[0-3][0-9])?|20[0-9]{2})(?!\d)"
)
"""Numbers of services, years and dates."""
_NUMBER_OF_A_THING = re.compile(
    r"(?i)(?:单号|單號|订单|訂單|编号|編號|序号|序號|流水号|书号|學號|学号|\bQQ|\bID|\bISBN)[号是为]?\s?[:：#]?\s?$"
)
_CHINESE = re.compile("[\u4e00-\u9fff]")
_COUNTRY_CODES = re.compile(
    r"1|7|2(?:0|7|[1-69]\d)|3(?:[0-469]|[578]\d)|4(?:[013-9]|2\d)|5(?:[1-8]|[09]\d)|6(?:[0-6]|[7-9]\d)"
    r"|8(?:[1246]|[058]\d)|9(?:[0-58]|[679]\d)"
)
_ACCOUNT = re.compile(r"[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])")
_CONTEXT = 24


def _before(text: str, start: int, characters: int = _CONTEXT) -> str:
    return text[max(0, start - characters) : start]


def _digits(text: str) -> str:
    return "".join(filter(str.isdecimal, text))


def _chinese_ids(text: str, first: int, last: int) -> Iterator[Found]:
    for match in _CHINESE_ID.finditer(text, first, last):
        if is_chinese_id(match[0]):
            yield *match.span(), "chinese_id"


def _cards(text: str, first: int, last: int) -> Iterator[Found]:
    for match in _CARD.finditer(text, first, last):
        grouped = len(match[0].split(match[0][4])[0]) == 4 and match[0][4] in " -"
        told = grouped or _CARD_CONTEXT.search(_before(text, match.start(), 40))
        if told and is_payment_card(_digits(match[0])):
            yield *match.span(), "credit_card"


def _social_security_numbers(text: str, first: int, last: int) -> Iterator[Found]:
    for match in _SSN.finditer(text, first, last):
        if is_us_social_security_number(match[1], match[2], match[3]):
            yield *match.span(), "us_ssn"


def _phones(text: str, first: int, last: int) -> Iterator[Found]:
    for match in _INTERNATIONAL.finditer(text, max(0, first - 2), last):
        digits = _digits(match[0])
        if match[1] and not _TOLD_PHONE.search(_before(text, match.start())):
            continue
        if 8 <= len(digits) <= 15 and _COUNTRY_CODES.match(digits) and not digits.endswith("00000"):
            yield *match.span(), "phone"
    for match in _NORTH_AMERICA.finditer(text, max(0, first - 1), last):
        # Three numbers with blanks between them stand in many a table.
        if match[1] != " " or _TOLD_PHONE.search(_before(text, match.start())):
            yield *match.span(), "phone"
    for match in _CHINESE_LANDLINE.finditer(text, max(0, first - 1), last):
        yield *match.span(), "phone"
    yield from _national_phones(text, first)
    for match in _CHINESE_MOBILE.finditer(text, first, last):
        before = _before(text, match.start())
        told = _TOLD_PHONE.search(before) or _CHINESE.search(before)
        if told and not match[0].endswith("0000") and not _NUMBER_OF_A_THING.search(before):
            yield *match.span(), "phone"


def _national_phones(text: str, first: int) -> Iterator[Found]:
    if not _TOLD_DIRECTLY.search(_before(text, first)) or _NO_NATIONAL.match(text, first):
        return
    match = _NATIONAL.match(text, first)
    if match is not None and 7 <= len(_digits(match[0])) <= 15:
        opened = ")" in match[0] and text[first - 1] == "("
        if opened or ")" not in match[0]:
            yield first - opened, match.end(), "phone"


def _machines(text: str, first: int, last: int) -> Iterator[Found]:
    for match in _IPV4.finditer(text, first, last):
        octets = [int(octet) for octet in match.groups()]
        # Versions and numbers of sections have small parts; of addresses fewer than 1 in 100 looks like one.
        large = sum(octet >= 32 for octet in octets)
        if (
            max(octets) > 255
            or large < 1 + (octets[0] <= 10)
            or any(len(o) > 1 and o[0] == "0" for o in match.groups())
        ):
            continue
        address = ipaddress.IPv4Address(match[0])
        of_one_machine = address.is_global and not address.is_multicast and octets[3] not in (0, 255)
        before = _before(text, match.start())
        drawn = _FRACTION_BEFORE.search(before) and _FRACTION_BEHIND.match(text, match.end())
        if of_one_machine and not drawn and not _VERSION_BEFORE.search(before):
            yield *match.span(), "ip_address"


_FINDERS: dict[PersonalKind, Callable[[str, int, int], Iterator[Found]]] = {
    "chinese_id": _chinese_ids,
    "credit_card": _cards,
    "us_ssn": _social_security_numbers,
    "phone": _phones,
    "ip_address": _machines,
}


def numbers(text: str, first: int, last: int, kinds: frozenset[PersonalKind]) -> Iterator[Found]:
    """What of `kinds` stands in the row of digits `text[first:last]`; finds of two kinds may overlap."""
    stop = min(len(text), last + 2)  # an identity number may end in X, and what follows decides
    for kind, find in _FINDERS.items():
        if kind in kinds:
            yield from find(text, first, stop)


def accounts(text: str, first: int) -> Iterator[Found]:
    """The IBAN that begins at character `first`, if one does."""
    match = _ACCOUNT.match(text, first)
    while match is not None:
        if is_iban(match[0].replace(" ", "")):
            yield *match.span(), "iban"
            return
        shorter = match[0].rfind(" ")  # the word behind it may look like a part of it
        match = _ACCOUNT.match(text[: first + shorter], first) if shorter > 0 else None

"""Personal data is masked by form and check digits; numbers that only look like it are left alone."""

from __future__ import annotations

import math
import random
import string
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.document import Document
from stoker.data.operators import operators_of
from stoker.data.operators.personal_data import MaskPersonalData
from stoker.data.personal_data import PLACEHOLDERS, mask
from stoker.data.personal_data.check_digits import is_chinese_id, is_iban, passes_luhn
from stoker.recipe import Cleaning, Kind, Source

EVERY = frozenset(PLACEHOLDERS)


def masked(text: str) -> str:
    return mask(text, EVERY)[0]


def secret(prefix: str, length: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return prefix + "".join(random.Random(length).choices(alphabet, k=length))


PERSONAL = {
    "mail": ("Write to jane.doe+news@mail.company.co.uk, please.", "Write to <EMAIL>, please."),
    "mail in Chinese": ("请联系zhang_san@qq.com。", "请联系<EMAIL>。"),
    "mail in angle brackets": ("Jane Doe <jane@company.com>", "Jane Doe <<EMAIL>>"),
    "two mails": ("a.b@c.com;d@e.org", "<EMAIL>;<EMAIL>"),
    "international phone": ("Call +44 20 7946 0958 today.", "Call <PHONE> today."),
    "international phone in one": ("tel:+4915112345678", "tel:<PHONE>"),
    "North American phone": ("Call (212) 555-0187 or 212-555-0188.", "Call <PHONE> or <PHONE>."),
    "Chinese mobile": ("我的手机是13812345678，请来电。", "我的手机是<PHONE>，请来电。"),
    "Chinese mobile in groups": ("电话：138-1234-5678", "电话：<PHONE>"),
    "Chinese landline": ("总机 010-62751234 转 5", "总机 <PHONE> 转 5"),
    "national phone that is told": ("Tel.: 030 12345678, Fax: 0211-654321", "Tel.: <PHONE>, Fax: <PHONE>"),
    "French phone that is told": ("Téléphone : 01 42 68 53 00.", "Téléphone : <PHONE>."),
    "area code in brackets": ("Phone: (089) 1234567", "Phone: <PHONE>"),
    "Taiwanese phone": ("聯絡電話：02-2345-6789", "聯絡電話：<PHONE>"),
    "Chinese mobile beside an order": ("订单号 771，手机13812345678", "订单号 771，手机<PHONE>"),
    "Chinese identity number": ("身份证号：11010519491231002X。", "身份证号：<ID_NUMBER>。"),
    "US social security number": ("SSN: 536-22-8726.", "SSN: <ID_NUMBER>."),
    "IBAN": ("IBAN DE89 3704 0044 0532 0130 00, Berlin", "IBAN <IBAN>, Berlin"),
    "IBAN in one": ("to GB82WEST12345698765432.", "to <IBAN>."),
    "IBAN before capitals": ("DE89 3704 0044 0532 0130 00 BANK", "<IBAN> BANK"),
    "card in groups": ("4539 1488 0343 6467 expires soon", "<CARD_NUMBER> expires soon"),
    "card that is told": ("银行卡号6222021234567890128", "银行卡号<CARD_NUMBER>"),
    "address of a machine": ("from 93.184.216.34:443.", "from <IP_ADDRESS>:443."),
    "addresses in a row": ("93.184.216.34 93.184.216.35 45.33.32.156", "<IP_ADDRESS> <IP_ADDRESS> <IP_ADDRESS>"),
    "address behind a time": ("1700000000.52 93.184.216.34 GET", "1700000000.52 <IP_ADDRESS> GET"),
    "address of version 6": ("at 2606:2800:220:1:248:1893:25c8:1946", "at <IP_ADDRESS>"),
    "GitHub token": (f"token={secret('ghp_', 36)} ", "token=<KEY> "),
    "Amazon key": (secret("AKIA", 16, string.ascii_uppercase + string.digits), "<KEY>"),
    "Hugging Face token": (f"'{secret('hf_', 34)}'", "'<KEY>'"),
    "web token": (
        f"Bearer {secret('eyJ', 30)}.{secret('eyJ', 40)}.{secret('', 43)}",
        "Bearer <KEY>",
    ),
    "private key": (
        "a\n-----BEGIN RSA PRIVATE KEY-----\n" + secret("MII", 200) + "\n-----END RSA PRIVATE KEY-----\nb",
        "a\n<KEY>\nb",
    ),
}


@pytest.mark.parametrize("name", PERSONAL)
def test_personal_data_is_masked_and_what_stands_around_it_is_not(name: str) -> None:
    text, expected = PERSONAL[name]
    assert masked(text) == expected


LEFT_ALONE = {
    "decorator": "@property\ndef name(self): ...",
    "handle": "follow @someone_else",
    "address of a repository": "git clone git@github.com:user/project.git",
    "address for examples": "user@example.com, root@localhost",
    "picture for two resolutions": "icon@2x.png",
    "login in an address": "https://user:word@host.company.com/x",
    "unit of systemd": "getty@tty1.service",
    "matrix product": "y = x@self.weight + h@w.reshape(2, 3) - u@v.transpose[0]",
    "numbers with blanks": "failed tests: 571 612 1056 of 1214",
    "number of an order": "订单号：13812345678，快递单号 13912345678，编号13712345678",
    "news of a version": "What's new in core 2.39.90.1: less. Upgraded to 3.40.91.2, 升级到 3.41.92.1",
    "version that is required": "Depends: libfoo (>= 2.39.90.1), package==12.40.77.3",
    "coordinates of a drawing": "M0 18c0 1.52-.87 2.83-2.12 3.51.98.32 2.03.5 3.11.5z",
    "years behind a word": "Mobile: 2021-2022 models, phone: 2024-01-15, phone: 20240115",
    "version of four parts": "Version 2.10.3.1 and 10.0.19041.1 and 8.2.4.44",
    "private address": "192.168.1.17, 10.0.0.99, 127.0.0.1, 255.255.255.0, 224.0.0.1",
    "address of a network": "93.184.216.0/24",
    "object identifier": "1.3.6.1.4.1.311.21.10",
    "hardware address": "00:1a:2b:3c:4d:5e and f9:2a:c2:77:29:f9:5c:00",
    "ISBN": "ISBN 978-0-306-40615-7 and 0-306-40615-2",
    "sum": "x = +4294967296 + 15551234567 - 3",
    "hash": "d41d8cd98f00b204e9800998ecf8427e and 3f786850e387550fdab836ed7e6dc881de23001b",
    "identifier": "uuid 123e4567-e89b-12d3-a456-426614174000",
    "digits of pi": "3.14159265358979323846264338327950288419716939937510",
    "powers of two": "4503599627370496 9007199254740992 18446744073709551616",
    "table": "| 536 | 22 | 8726 |\n| 4539 | 1488 | 343 | 6467 |",
    "dates": "2024-01-15 10:30:45, 20240115103045, 1705314645, 1705314645123",
    "snowflake": "415508856908021766",
    "range of years": "1990-2005, pp. 212-225, 555-1234",
    "service number": "客服热线：400-123-4567",
    "long name": "this_is_a_rather_long_name_of_a_function_number_12",
    "secret for examples": "AKIAIOSFODNN7EXAMPLE",
    "secret without chance": "sk-" + "a1" * 20,
    "place of a private key": (
        "-----BEGIN RSA PRIVATE KEY-----\n... (private key in base64 encoding) ...\n-----END RSA PRIVATE KEY-----"
    ),
    "public key": "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----",
    "identity number with a wrong digit": "110105194912310021",
    "IBAN with a wrong digit": "DE88 3704 0044 0532 0130 00",
    "card with a wrong digit": "4539 1488 0343 6468",
    "formula": "$(x_1+y_2)^{10} = \\sum_{k=0}^{10} \\binom{10}{k} 1234567890 x^k$",
    "part number": "AB12 CD34 EF56 GH78",
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_only_looks_like_personal_data_is_left_alone(name: str) -> None:
    assert masked(LEFT_ALONE[name]) == LEFT_ALONE[name]


def test_only_what_is_asked_for_is_masked_and_counted() -> None:
    text = "jane@company.com, +44 20 7946 0958"
    assert mask(text, frozenset({"email"})) == ("<EMAIL>, +44 20 7946 0958", {"email": 1})
    assert mask(text, frozenset({"phone", "key"})) == ("jane@company.com, <PHONE>", {"key": 0, "phone": 1})


@given(st.integers(0, 10**15 - 1))
def test_the_check_digit_of_a_card_catches_every_wrong_digit(number: int) -> None:
    digits = f"{number:015}"
    right = [digit for digit in "0123456789" if passes_luhn(digits + digit)]
    assert len(right) == 1
    whole = digits + right[0]
    for place in range(16):
        wrong = whole[:place] + str((int(whole[place]) + 1) % 10) + whole[place + 1 :]
        assert not passes_luhn(wrong)


@given(st.integers(1, 10**18 - 1))
def test_one_pair_of_check_digits_makes_an_iban(account: int) -> None:
    number = f"{account:018}"
    right = [check for check in range(2, 99) if is_iban(f"DE{check:02}{number}")]
    assert len(right) == 1


@given(st.dates(min_value=date(1900, 1, 1)), st.integers(0, 999))
def test_one_check_digit_makes_a_chinese_identity_number(born: date, order: int) -> None:
    start = f"310104{born:%Y%m%d}{order:03}"
    valid = [digit for digit in "0123456789X" if is_chinese_id(start + digit)]
    assert len(valid) == (1 if int(start[6:10]) < 2100 else 0)


@given(st.text(alphabet="ab1234567890@.-+: _()AKIADE中\n", max_size=120))
def test_masking_twice_changes_nothing_more(text: str) -> None:
    once, counts = mask(text, EVERY)
    assert mask(once, EVERY)[0] == once
    assert (once == text) == (sum(counts.values()) == 0)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers())
def test_numbers_of_programs_are_never_masked_alone(value: float, whole: int) -> None:
    text = f"x = {value!r}; y = {math.pi * value!r}; z[{whole % 10**10}] = 0x{abs(whole):x}"
    assert masked(text) == text


@pytest.mark.parametrize(("kind", "expected"), [("prose", "<EMAIL>"), ("code", "jane@company.com")])
def test_what_is_masked_depends_on_the_kind(kind: Kind, expected: str) -> None:
    source = Source(name="s", kind=kind, paths=("x",))
    operator = MaskPersonalData.of(source, Cleaning())
    assert operator is not None
    outcome = operator(Document("s", kind, None, "1", "f", "file", f"jane@company.com {secret('ghp_', 36)}"))
    assert outcome.document.text == f"{expected} <KEY>"
    assert set(outcome.measures) == set(operator.measures)
    assert outcome.measures["personal_data.key"] == 1
    assert outcome.reason is None


def test_the_operator_is_left_out_where_nothing_is_to_be_masked() -> None:
    settings = Cleaning.model_validate({"personal_data": {"mask": []}})
    source = Source(name="s", paths=("x",))
    assert "personal_data" not in [operator.name for operator in operators_of(source, settings)]
    assert "personal_data" in [operator.name for operator in operators_of(source, Cleaning())]

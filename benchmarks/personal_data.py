"""What is masked of drawn personal data, and of drawn numbers and words that only look like it, form by form.

    python benchmarks/personal_data.py [--each 500] [--half final]

Every form is drawn from seeds and stands in a sentence. Right is a value that is replaced by its placeholder, whole,
with nothing beside it; wrong is any placeholder where nothing personal stands. Both halves were written down, by the
author of the rules, before the rules that they led to; `building` says in which forms mistakes were looked at.
"""
# ruff: noqa: E501, SIM905 (a form to a line)

from __future__ import annotations

import argparse
import string
from collections import defaultdict
from collections.abc import Callable
from random import Random

from stoker.data.personal_data import PLACEHOLDERS, mask
from stoker.data.personal_data.check_digits import is_chinese_id, is_payment_card

_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_NAMES = "anna brook chen dimitri elena farid gu haruka ivan jia kofi lena mei noor otto petra".split()
_HOSTS = "mailbox.org qq.com 163.com company.co.uk uni-bonn.de gmail.com tsinghua.edu.cn posteo.net acme.io".split()

Draw = Callable[[Random], tuple[str, str]]
"""(sentence with {} where the value stands, the value)."""


def _d(draw: Random, count: int, first: str = "123456789") -> str:
    return draw.choice(first) + "".join(draw.choices(string.digits, k=count - 1))


def _form(sentence: str, value: Callable[[Random], str]) -> Draw:
    return lambda draw: (sentence, value(draw))


def _mail(draw: Random) -> str:
    local = (
        draw.choice(_NAMES)
        + draw.choice((".", "_", "", "-"))
        + draw.choice(_NAMES)
        + draw.choice(("", "7", "+news"))
    )
    return f"{local}@{draw.choice(_HOSTS)}"


def _mobile(draw: Random) -> str:
    return draw.choice("135 136 139 150 158 177 186 189 199".split()) + _d(draw, 7) + draw.choice("123456789")


def _grouped(mobile: str, sign: str) -> str:
    return sign.join((mobile[:3], mobile[3:7], mobile[7:]))


def _american(draw: Random, pattern: str) -> str:
    return pattern.format(_d(draw, 3, "23456789"), _d(draw, 3, "23456789"), _d(draw, 4))


def _chinese_id(draw: Random, wrong: bool = False) -> str:
    start = f"{draw.choice(('110105', '310104', '440306', '510107'))}{draw.randint(1950, 2010)}{draw.randint(1, 12):02}{draw.randint(1, 28):02}{draw.randrange(1000):03}"
    right = "10X98765432"[sum(int(a) * b for a, b in zip(start, _WEIGHTS, strict=True)) % 11]
    number = start + (draw.choice([d for d in "0123456789X" if d != right]) if wrong else right)
    assert is_chinese_id(number) != wrong
    return number


def _card(draw: Random, wrong: bool = False) -> str:
    start = draw.choice(("4", "51", "54", "6222")) + _d(draw, 15)
    right = next(d for d in string.digits if is_payment_card(start[:15] + d))
    number = start[:15] + (str((int(right) + draw.randint(1, 9)) % 10) if wrong else right)
    return " ".join(number[i : i + 4] for i in range(0, 16, 4))


def _address(draw: Random) -> str:
    return f"{draw.choice((45, 61, 93, 101, 139, 185, 203, 212))}.{draw.randint(32, 254)}.{draw.randint(1, 254)}.{draw.randint(1, 254)}"


def _word(draw: Random, count: int, letters: str = string.ascii_letters + string.digits) -> str:
    return "".join(draw.choices(letters, k=count))


PERSONAL: dict[str, dict[str, dict[str, Draw]]] = {
    "building": {
        "email": {
            "prose": _form("Write to {} before Friday.", _mail),
            "Chinese, without blanks": _form("有问题请发邮件到{}，谢谢。", _mail),
            "in code": _form('MAINTAINERS = ["{}"]  # ask first', _mail),
        },
        "phone": {
            "Chinese mobile": _form("我的手机号是{}，随时联系。", _mobile),
            "Chinese mobile, groups": _form("电话：{}", lambda d: _grouped(_mobile(d), d.choice(" -"))),
            "Chinese landline": _form(
                "办公室电话 {}。", lambda d: f"0{d.choice(('10', '21', '755', '571'))}-{_d(d, 8, '2345678')}"
            ),
            "international": _form(
                "Call me at {} tonight.",
                lambda d: f"+{d.choice(('44', '49', '86', '81'))} {_d(d, 2)} {_d(d, 4)} {_d(d, 4)}",
            ),
            "North American": _form(
                "His number is {}.", lambda d: _american(d, d.choice(("({}) {}-{}", "{}-{}-{}", "{}.{}.{}")))
            ),
            "told, national": _form("Tel.: {}", lambda d: f"0{_d(d, 2)} {_d(d, d.randint(6, 8))}"),
        },
        "chinese_id": {"told": _form("身份证号：{}。", _chinese_id)},
        "credit_card": {"groups": _form("Pay with {} please.", _card)},
        "ip_address": {"log": _form('{} - - [12/Mar/2023:04:05:06 +0000] "GET / HTTP/1.1" 200 17', _address)},
        "key": {"setting": _form("GITHUB_TOKEN={}", lambda d: "ghp_" + _word(d, 36))},
    },
    "final": {
        "email": {
            "header": _form("From: Anna <{}>", _mail),
            "link": _form("[write](mailto:{}) to us", _mail),
            "comment": _form("/* Copyright (c) 2009 Jia Chen <{}> */", _mail),
        },
        "phone": {
            "Chinese, country code": _form("请拨打 {} 咨询。", lambda d: "+86 " + _grouped(_mobile(d), " ")),
            "English, Chinese mobile": _form("Mobile: {}", _mobile),
            "French, told": _form(
                "Téléphone : {}", lambda d: f"0{d.randint(1, 6)} " + " ".join(_d(d, 2) for _ in range(4))
            ),
            "fax, told": _form("Fax: {}", lambda d: f"0{_d(d, 3)}-{_d(d, 6)}"),
            "international, hyphens": _form("({})", lambda d: f"+1-{_american(d, '{}-{}-{}')}"),
            "traditional, told": _form("聯絡電話：{}", lambda d: f"02-{_d(d, 4, '2345678')}-{_d(d, 4)}"),
        },
        "chinese_id": {"among fields": _form("张三,男,{},北京", _chinese_id)},
        "credit_card": {"told": _form("card number {}", lambda d: _card(d).replace(" ", ""))},
        "ip_address": {"mail": _form("Received: from mx ([{}])", _address)},
        "key": {"code": _form('client = Client(api_key="{}")', lambda d: "sk-proj-" + _word(d, 48))},
    },
}
NOT_PERSONAL: dict[str, dict[str, Draw]] = {
    "building": {
        "version of four parts, told": _form("What's new in core {}:", lambda d: f"{d.randint(1, 9)}.{d.randint(32, 99)}.{d.randint(32, 99)}.{d.randint(0, 9)}"),
        "version, required": _form("Depends: libfoo (>= {})", lambda d: f"{d.randint(1, 99)}.{d.randint(32, 99)}.{d.randint(32, 99)}.{d.randint(1, 9)}"),
        "path of a picture": _form("<path d='M2.83-2.12 {} 2.03.5 3.11z'/>", lambda d: f"{d.randint(1, 9)}.{d.randint(32, 98)}.{d.randint(32, 98)}.{d.randint(32, 98)}"),
        "numbers of tests": _form("failed tests: {} in all", lambda d: _american(d, "{} {} {}")),
        "order number": _form("订单号：{}，请核对。", _mobile),
        "ISBN": _form("ISBN {}", lambda d: f"978-7-{_d(d, 3)}-{_d(d, 5)}-{_d(d, 1)}"),
        "date and time": _form("at {} UTC", lambda d: f"20{_d(d, 2)}-0{_d(d, 1)}-1{_d(d, 1)} 1{_d(d, 1)}:2{_d(d, 1)}:3{_d(d, 1)}"),
        "identity number, wrong digit": _form("编号 {} 无效", lambda d: _chinese_id(d, True)),
        "card, wrong digit": _form("number {} failed", lambda d: _card(d, True)),
        "matrix product": _form("y = x@{}(0, 1)", lambda d: f"{d.choice(('self', 'model', 'w'))}.{d.choice(('weight', 'transpose', 'reshape', 'permute'))}"),
        "key of an example": _form("export TOKEN={}", lambda d: "ghp_" + "x" * 36),
        "private address": _form("listening on {}", lambda d: f"192.168.{d.randint(32, 250)}.{d.randint(32, 250)}"),
    },
    "final": {
        "version, upgraded": _form("Upgraded to {} in March.", lambda d: f"{d.randint(1, 9)}.{d.randint(32, 99)}.{d.randint(32, 99)}.{d.randint(0, 9)}"),
        "version of a requirement": _form("package=={}", lambda d: f"{d.randint(1, 99)}.{d.randint(32, 99)}.{d.randint(32, 99)}.{d.randint(1, 9)}"),
        "rows of figures": _form("scores {} 1312", lambda d: _american(d, "{} {} {}")),
        "parcel": _form("快递单号 {} 已签收", _mobile),
        "ISBN of ten digits": _form("ISBN {}", lambda d: f"0-{_d(d, 3)}-{_d(d, 5)}-{_d(d, 1)}"),
        "time in milliseconds": _form("时间戳 {} 毫秒", lambda d: "1" + _d(d, 12)),
        "hash": _form("commit {}", lambda d: _word(d, 40, "0123456789abcdef")),
        "identifier": _form("id {}", lambda d: "-".join(_word(d, n, "0123456789abcdef") for n in (8, 4, 4, 4, 12))),
        "object identifier": _form("OID {}", lambda d: f"1.3.6.1.4.1.{_d(d, 4)}.{d.randint(1, 99)}"),
        "place": _form("at {}", lambda d: f"{d.randint(10, 89)}.{_d(d, 6)}, {d.randint(100, 179)}.{_d(d, 6)}"),
        "package with a version": _form("npm install {}", lambda d: f"left@{d.randint(1, 20)}.{d.randint(0, 99)}.{d.randint(0, 9)}"),
        "years": _form("Mobile: {} models", lambda d: f"20{_d(d, 2)}-20{_d(d, 2)}"),
        "difference of files": _form("@@ {} @@", lambda d: f"-{_d(d, 4)},7 +{_d(d, 4)},9"),
    },
}  # fmt: skip


def main() -> None:
    """Print recall by kind and form, and the share of each form that is wrongly masked."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--each", type=int, default=500)
    arguments.add_argument("--half", choices=tuple(PERSONAL), default="final")
    given = arguments.parse_args()
    kinds = frozenset(PLACEHOLDERS)
    of_kind: dict[str, list[float]] = defaultdict(list)
    for kind, forms in PERSONAL[given.half].items():
        for name, form in forms.items():
            right = 0
            for seed in range(given.each):
                sentence, value = form(Random(f"{name} {seed}"))
                right += mask(sentence.format(value), kinds)[0] == sentence.format(PLACEHOLDERS[kind])  # type: ignore[index]
            of_kind[kind].append(right / given.each)
            print(f"{kind:<14}{name:<32}{right / given.each:>8.1%}")
    wrong: dict[str, float] = {}
    for name, form in NOT_PERSONAL[given.half].items():
        texts = [
            sentence.replace("{}", value)
            for sentence, value in (form(Random(f"{name} {i}")) for i in range(given.each))
        ]
        wrong[name] = sum(mask(text, kinds)[0] != text for text in texts) / given.each
        print(f"{'nothing':<14}{name:<32}{wrong[name]:>8.1%}")
    found, mistaken = sum(sum(shares) for shares in of_kind.values()), sum(wrong.values())
    print(f"\nrecall {found / sum(map(len, of_kind.values())):.3f}, precision {found / (found + mistaken):.3f}")


if __name__ == "__main__":
    main()

"""Mail addresses, keys and IPv6 addresses."""

from __future__ import annotations

import ipaddress
import math
import re
from collections import Counter
from collections.abc import Iterator

from stoker.data.personal_data.numbers import Found

_LOCAL_PART = re.compile(r"[A-Za-z0-9_+](?:[A-Za-z0-9._%+\-]{0,62}[A-Za-z0-9_])?$")
_DOMAIN = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9\-]{0,61}[A-Za-z0-9])?\.){1,6}([A-Za-z]{2,18})(?![A-Za-z0-9\-])")
_NO_PERSON = frozenset(("git", "svn", "hg", "noreply", "no-reply", "donotreply"))
_RESERVED = re.compile(r"(?i)(?:^|\.)(?:example\.(?:com|org|net)|example|test|invalid|localhost|local)$")
_LONGEST_COMMON_ENDING = 3
_OBJECTS = ("self", "cls", "this", "np", "torch")
_LOGIN = re.compile(r"://[^\s/@]*$")
"""What stands before the sign in `https://name:password@host`."""
_PICTURES = ("png", "jpg", "jpeg", "gif", "svg", "webp", "bmp", "ico")
_TEXTS = ("css", "js", "ts", "py", "rb", "md", "txt", "html", "xml", "json", "yaml", "yml", "toml")
_FILE_ENDINGS = frozenset((*_PICTURES, *_TEXTS, "service", "socket", "target", "timer"))
"""What stands behind a dot in `icon@2x.png` or `getty@tty1.service` and is no top-level domain."""

_KEY = re.compile(
    r"(?:AKIA|ASIA)[0-9A-Z]{16}"  # Amazon
    r"|LTAI[0-9A-Za-z]{12,26}|AKID[0-9A-Za-z]{28,36}"  # Alibaba, Tencent
    r"|AIza[0-9A-Za-z_\-]{35}|GOCSPX-[0-9A-Za-z_\-]{28}"  # Google
    r"|gh[opusr]_[0-9A-Za-z]{36,255}|github_pat_[0-9A-Za-z_]{60,255}|glpat-[0-9A-Za-z_\-]{20,}"
    r"|xox[abeoprs]-[0-9A-Za-z\-]{16,}"  # Slack
    r"|[rs]k_live_[0-9A-Za-z]{20,}"  # Stripe
    r"|sk-(?:ant-|proj-|svcacct-|or-)?[0-9A-Za-z_\-]{32,}"  # model providers
    r"|hf_[0-9A-Za-z]{30,}|npm_[0-9A-Za-z]{36}|pypi-[0-9A-Za-z_\-]{60,}|dop_v1_[0-9a-f]{64}"
    r"|SG\.[0-9A-Za-z_\-]{22}\.[0-9A-Za-z_\-]{43}"  # SendGrid
    r"|eyJ[0-9A-Za-z_\-]{10,}\.eyJ[0-9A-Za-z_\-]{10,}\.[0-9A-Za-z_\-]{16,}"  # JSON web token
)
_NO_SECRET = re.compile(r"(?i)example|sample|dummy|xxxx|0000000|1234567|abcdef")
_LEAST_ENTROPY = 3.0
_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----[A-Za-z0-9+/=\s\\\"':;,.\-]{60,20000}?"
    r"-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
)
_IPV6 = re.compile(r"[23][0-9a-fA-F]{3}:{1,2}(?:[0-9a-fA-F]{1,4}:{1,2}){1,6}[0-9a-fA-F]{1,4}(?![\w:]|\.\w)")
"""Of the block that is given out to the internet, 2000::/3."""


def emails(text: str) -> Iterator[Found]:
    """Mail addresses. Addresses of programs (`git@`, `noreply@`) and domains reserved for examples are none."""
    at = text.find("@")
    while at >= 0:
        before = text[max(0, at - 256) : at]
        local = _LOCAL_PART.search(before[-64:]) if before else None
        domain = _DOMAIN.match(text, at + 1) if local is not None else None
        if local is None or domain is None or _is_product(text, domain):
            at = text.find("@", at + 1)
            continue
        if _is_person(local[0], domain) and not _LOGIN.search(before):
            yield at - len(local[0]), domain.end(), "email"
        at = text.find("@", at + 1)


def _is_person(local: str, domain: re.Match[str]) -> bool:
    known_not = local.lower() in _NO_PERSON or domain[1].lower() in _FILE_ENDINGS
    return not known_not and _RESERVED.search(domain[0]) is None


def _is_product(text: str, domain: re.Match[str]) -> bool:
    """Whether the sign stands between matrices: `x@self.weight`, `a@b.reshape(2, 3)`."""
    called = text.startswith(("(", "["), domain.end()) and len(domain[1]) > _LONGEST_COMMON_ENDING
    return called or domain[0].split(".", 1)[0] in _OBJECTS


def key_at(text: str, first: int, last: int) -> Iterator[Found]:
    """The key of a known provider that begins in the long word `text[first:last]`, if one does."""
    match = _KEY.search(text, first, min(len(text), last + 400))
    if match is None or match.start() >= last or (match.start() and text[match.start() - 1].isalnum()):
        return
    if _NO_SECRET.search(match[0]) is None and entropy(match[0]) >= _LEAST_ENTROPY:
        yield *match.span(), "key"


def private_keys(text: str) -> Iterator[Found]:
    """Private keys in PEM form, from their first dash to their last."""
    if "PRIVATE KEY" in text:
        for match in _PRIVATE_KEY.finditer(text):
            yield *match.span(), "key"


def ipv6_addresses(text: str) -> Iterator[Found]:
    """Addresses of machines on the internet of version 6."""
    for match in _IPV6.finditer(text):
        if match.start() and (text[match.start() - 1].isalnum() or text[match.start() - 1] in ":._"):
            continue
        try:
            address = ipaddress.IPv6Address(match[0])
        except ValueError:
            continue
        if address.is_global:
            yield *match.span(), "ip_address"


def entropy(text: str) -> float:
    """Shannon entropy of the characters of `text`, in bits to a character."""
    return -sum(count / len(text) * math.log2(count / len(text)) for count in Counter(text).values())

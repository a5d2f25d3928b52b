"""What programs write for programs: digests of lock files, and names that only generators give."""

from __future__ import annotations

import re

_DIGEST = re.compile(
    r"(?:sha(?:1|224|256|384|512)[-:=]|md5[-:=]|\bh1:|checksum|integrity|digest|#)[\s\"':=]{0,4}"
    r"(?:[A-Za-z0-9+/]{27,88}={0,2}|[0-9a-f]{32,128})(?![\w+/])"
)
_MARKS_OF_DIGESTS = ("sha1-", "sha256", "sha384", "sha512", "md5", "h1:", "checksum", "integrity", "resolved")
_RESOLVED = re.compile(r"(?:\"?resolved\"?:?|source =) \"?(?:https?://|registry\+)[^\s\"#]+")
_NAMES_WORDS = (
    "AddSerializedFile _serialized_start _serialized_end _serialized_options _globals[ _descriptor_pool "
    "_descriptor.FieldDescriptor( _descriptor.Descriptor( DESCRIPTOR. DESCRIPTOR, _builder.Build "
    "protobuf::internal PROTOBUF_ protoc_insertion_point _internal_metadata_ protoimpl. protoreflect. "
    "__pyx_ __Pyx_ SWIG_ thrift_spec iprot. oprot. qt_meta_ QT_MOC_ QtMocHelpers _lr_ yytable "
    "yycheck yypact yypgoto yydefact yytranslate"
)
_NAMES = tuple(_NAMES_WORDS.split())
_FEWEST_NAMES = 4


def digest_characters(text: str) -> int:
    """Characters of digests that are named as such, and of the addresses that packages were resolved to."""
    if not any(mark in text for mark in _MARKS_OF_DIGESTS):
        return 0
    return sum(len(match[0]) for pattern in (_DIGEST, _RESOLVED) for match in pattern.finditer(text))


def generator_names(text: str) -> int:
    """How many names stand in a program that only generators give (of protobuf, Thrift, SWIG, Cython, Qt, parsers).

    0 for fewer than four: whoever calls a generator's library may use one.
    """
    found = sum(map(text.count, _NAMES))
    return found if found >= _FEWEST_NAMES else 0

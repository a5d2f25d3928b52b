"""Web archives give their pages, each with its record, whatever state they are in."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.data.document import Document, Fault
from stoker.data.extraction import extract_text
from stoker.data.operators import judge
from tests.data.reading.reading_files import faults, read_all, texts
from tests.data.reading.web_archives import PAGE, SENTENCE, archive, page, record, response

TEXT = SENTENCE.decode()


def read(tmp_path: Path, content: bytes, name: str = "a.warc.gz", **settings: object) -> list[Document | Fault]:
    (tmp_path / name).write_bytes(content)
    return read_all(tmp_path, name, **settings)


def passed_over(found: list[Document | Fault]) -> list[str | None]:
    return [document.passed_over for document in found if isinstance(document, Document)]


@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz", "a.warc.zst"])
def test_each_response_is_a_document_with_its_record_and_address(tmp_path: Path, name: str) -> None:
    records = [
        record(b"software: x\r\n", 1, "warcinfo"),
        record(b"GET / HTTP/1.1\r\n\r\n", 2, "request"),
        record(page(), 3),
        record(page(b"Second."), 4),
    ]
    packed = {
        "a.warc": b"".join(records),
        "a.warc.gz": archive(*records),
        "a.warc.zst": zstandard.compress(b"".join(records)),
    }[name]
    found = read(tmp_path, packed, name)
    assert texts(found) == [TEXT, "Second."]
    assert [one.identifier for one in found if isinstance(one, Document)] == [
        "urn:uuid:" + "3".rjust(32, "0"), "urn:uuid:" + "4".rjust(32, "0")
    ]  # fmt: skip
    place = len(archive(*records[:3])) if name.endswith(".gz") else sum(map(len, records[:3]))
    assert found[1].position == f"record 4, byte {place}, https://example.org/4"


def test_extracted_text_of_a_crawl_is_taken_as_it_is(tmp_path: Path) -> None:
    text = "第一行\nSecond <p> line"
    wet = archive(record(b"x", 1, "warcinfo"), record(text.encode(), 2, "conversion", Content_Type="text/plain"))
    assert texts(read(tmp_path, wet, "a.warc.wet.gz")) == [text]


def test_a_page_at_which_the_extractor_fails_costs_none_of_those_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(page: str, engine: str) -> str:
        if "Second" in page:
            raise KeyError("no such tag")
        return extract_text(page, "stoker")

    monkeypatch.setattr("stoker.data.reading.warc.extract_text", failing)
    records = [record(page(text), number) for number, text in enumerate([SENTENCE, b"Second.", b"Third."])]
    found = read(tmp_path, archive(*records))
    assert texts(found) == [TEXT, "Third."]
    ((position, reason),) = faults(found)
    assert position.startswith("record 2, ")
    assert reason == "poisoned"
    assert isinstance(found[1], Fault)
    assert found[1].detail == "cannot be read: KeyError in failing (test_warc.py): 'no such tag'"


def _chunked(body: bytes) -> bytes:
    parts = [body[at : at + 7] for at in range(0, len(body), 7)]
    return b"".join(b"%x;ext=1\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


_RAW_DEFLATE = zlib.compressobj(wbits=-15)
BODY = PAGE % SENTENCE
ENCODED = {
    "gzip": gzip.compress(BODY),
    "deflate": zlib.compress(BODY),
    "Deflate": _RAW_DEFLATE.compress(BODY) + _RAW_DEFLATE.flush(),
    "br": brotli.compress(BODY),
    "zstd": zstandard.compress(BODY),
    "identity": BODY,
    "deflate, gzip": gzip.compress(zlib.compress(BODY)),
}


@pytest.mark.parametrize("encoding", ENCODED)
@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_are_decoded_as_their_headers_say(tmp_path: Path, encoding: str, chunked: bool) -> None:
    body = ENCODED[encoding]
    transfer = {"Transfer_Encoding": "chunked"} if chunked else {}
    answer = response(_chunked(body) if chunked else body, Content_Encoding=encoding, **transfer)
    assert texts(read(tmp_path, archive(record(answer)))) == [TEXT]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_a_body_that_the_crawler_decoded_already_is_taken_as_it_is(tmp_path: Path, encoding: str) -> None:
    answer = response(BODY, Content_Encoding=encoding, Transfer_Encoding="chunked")
    assert texts(read(tmp_path, archive(record(answer)))) == [TEXT]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_a_body_that_swells_beyond_the_limit_is_named_and_costs_no_memory(tmp_path: Path, encoding: str) -> None:
    bomb = b"<p>" + bytes(32 << 20)
    packed = {
        "gzip": gzip.compress, "deflate": zlib.compress, "br": lambda data: brotli.compress(data, quality=1),
        "zstd": zstandard.compress,
    }[encoding](bomb)  # fmt: skip
    found = read(
        tmp_path, archive(record(response(packed, Content_Encoding=encoding)), record(page(), 2)), limit=1 << 16
    )
    assert [reason for _, reason in faults(found)] == ["too_large"]
    assert texts(found) == [TEXT]


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [("text/html; charset=gb2312", "gbk"), ('text/html;charset="Big5"', "big5"), ("text/html", "utf-8")],
)
def test_the_charset_of_the_header_is_used(tmp_path: Path, kind: str, encoding: str) -> None:
    text = "繁體中文的網頁" if encoding == "big5" else "中文网页，我们说话"
    answer = response(f"<p>{text}</p>".encode(encoding), kind)
    assert texts(read(tmp_path, archive(record(answer)))) == [text]


def test_what_is_no_page_is_passed_over_with_its_reason_and_stops_nothing(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        archive(
            record(response(b"\x89PNG", "image/png"), 1),
            record(response(BODY, status="404 Not Found"), 2),
            record(b"HTTP/1.1 200 OK\r\n\r\n", 3, "revisit"),
            record(response(b"Plain.", "text/plain"), 4),
            record(response(BODY, ""), 5),
            record(BODY, 6, "resource", Content_Type="text/html"),
        ),
    )
    assert passed_over(found) == ["not_html", "http_status", "revisit", None, None, None]
    assert texts(found)[3:] == ["Plain.", TEXT, TEXT]
    assert not faults(found)
    judged = [judge(document, ()) for document in found if isinstance(document, Document)]
    assert [(one.stage, one.reason) for one in judged[:3]] == [
        ("read", "not_html"), ("read", "http_status"), ("read", "revisit")
    ]  # fmt: skip
    assert judged[1].detail == "HTTP status 404"


def test_a_damaged_member_costs_its_record_and_no_other(tmp_path: Path) -> None:
    members = [archive(record(page(b"Page %d." % n), n)) for n in range(4)]
    broken = bytearray(members[1])
    broken[len(broken) // 2] ^= 0xFF
    found = read(tmp_path, members[0] + bytes(broken) + members[2] + members[3])
    assert texts(found) == ["Page 0.", "Page 2.", "Page 3."]
    ((position, reason),) = faults(found)
    assert reason == "damaged"
    assert position.endswith(f"byte {len(members[0])}")


@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz"])
def test_a_truncated_archive_keeps_the_records_before_the_end(tmp_path: Path, name: str) -> None:
    records = [record(page(b"Page %d." % n), n) for n in range(3)]
    whole = archive(*records) if name.endswith("gz") else b"".join(records)
    found = read(tmp_path, whole[:-30], name)
    assert texts(found) == ["Page 0.", "Page 1."]
    assert [reason for _, reason in faults(found)] == ["truncated"]


def test_a_record_with_a_broken_header_is_named_and_the_next_is_read(tmp_path: Path) -> None:
    whole = record(page(b"One."), 1) + b"garbage\r\nmore\r\n" + record(page(b"Two."), 2) + record(page(), 3)
    found = read(tmp_path, whole.replace(b"Content-Length: ", b"Content-Length: x", 1), "a.warc")
    assert texts(found) == ["Two.", TEXT]
    assert [reason for _, reason in faults(found)] == ["not_warc", "not_warc"]


def test_a_record_over_the_limit_is_named_and_skipped(tmp_path: Path) -> None:
    found = read(tmp_path, archive(record(page(b"x " * (1 << 20)), 1), record(page(), 2)), limit=1 << 16)
    assert texts(found) == [TEXT]
    assert [reason for _, reason in faults(found)] == ["too_large"]


def test_brotli_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "brotli", None)
    found = read(tmp_path, archive(record(response(ENCODED["br"], Content_Encoding="br"))))
    (fault,) = found
    assert isinstance(fault, Fault)
    assert (fault.reason, "stoker[brotli]" in fault.detail) == ("unknown_encoding", True)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_damage_is_named_and_every_page_that_is_whole_is_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    members = [archive(record(page(b"Page %d." % n), n)) for n in range(3)]
    hit = data.draw(st.integers(0, 2))
    at = data.draw(st.integers(0, len(members[hit]) - 1))
    broken = bytearray(members[hit])
    broken[at] ^= data.draw(st.integers(1, 255))
    found = read(
        tmp_path_factory.mktemp("a"), b"".join(bytes(broken) if n == hit else members[n] for n in range(3))
    )
    others = [f"Page {n}." for n in range(3) if n != hit]
    assert [text for text in texts(found) if text in others] == others
    assert faults(found) or len(texts(found)) == 3

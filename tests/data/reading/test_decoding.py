"""Whatever encoding a file is in, its text is right or it is a named fault; never noise."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.reading.decoding import Undecodable, decode, decode_line
from tests.data.reading.reading_files import faults, read_all, texts

SIMPLIFIED = "今天天气很好，我们一起去公园散步。他说这本书写得很有意思，可是价钱太贵了。"
TRADITIONAL = "今天天氣很好，我們一起去公園散步。他說這本書寫得很有意思，可是價錢太貴了。"


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "gbk", "gb18030", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
)
def test_simplified_chinese_is_right_in_every_encoding(encoding: str) -> None:
    assert decode(SIMPLIFIED.encode(encoding)) == SIMPLIFIED


@pytest.mark.parametrize("encoding", ["utf-8", "big5", "cp950", "big5hkscs", "gbk", "utf-16-le", "utf-16-be"])
def test_traditional_chinese_is_right_in_every_encoding(encoding: str) -> None:
    assert decode(TRADITIONAL.encode(encoding)) == TRADITIONAL


@pytest.mark.parametrize("text", ["你好", "中文", "我们", "新闻", "谢谢大家", "第一章 开始", "北京市", "问题"])
def test_a_few_characters_of_gbk_are_enough(text: str) -> None:
    assert decode(text.encode("gbk")) == text


@pytest.mark.parametrize("text", ["你好嗎", "中文字", "我們", "新聞", "謝謝大家", "第一章 開始", "臺北市", "問題"])
def test_a_few_characters_of_big5_are_enough(text: str) -> None:
    assert decode(text.encode("big5")) == text


@pytest.mark.parametrize(
    ("words", "encoding"), [("函式", "big5"), ("視窗與函式", "big5"), ("语法", "gbk"), ("描述与语法", "gbk")]
)
def test_a_few_chinese_words_in_an_english_text_are_right(words: str, encoding: str) -> None:
    text = f'.SH "{words} DESCRIPTION"\nThis macro allocates memory, in the same manner as malloc.\n'
    assert decode(text.encode(encoding)) == text


@pytest.mark.parametrize("text", ["It’s “here”", "函式 – list ––", "函式 •••"])
def test_typographic_signs_of_big5_are_right_in_an_english_text(text: str) -> None:
    assert decode(text.encode("big5")) == text


@pytest.mark.parametrize("text", ["ユーザー名: ", "# ファイルマーク:", "(片仮名を含む)"])
def test_a_few_characters_of_japanese_are_not_chinese(text: str) -> None:
    assert decode(text.encode("euc_jp")) == text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("視窗 Window", "big5"),
        ("描述\n描述\n描述", "gbk"),
        ("A etiqueta DESDE la línea", "cp1252"),
        ("¡Listo!", "cp1252"),
    ],
)
def test_what_two_encodings_explain_equally_well_is_a_fault_and_not_noise(text: str, encoding: str) -> None:
    with pytest.raises(Undecodable, match="no other encoding fits"):
        decode(text.encode(encoding))


@given(st.permutations(SIMPLIFIED), st.integers(8, 30))
def test_any_words_of_simplified_chinese_in_gbk_are_right(words: list[str], length: int) -> None:
    text = "".join(words[:length])
    assert decode(text.encode("gbk")) == text


@given(st.permutations(TRADITIONAL), st.integers(8, 30))
def test_any_words_of_traditional_chinese_in_big5_are_right(words: list[str], length: int) -> None:
    text = "".join(words[:length])
    assert decode(text.encode("big5")) == text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("これは日本語のテキストです。とても短いです。", "shift_jis"),
        ("これは日本語のテキストです。とても短いです。", "euc_jp"),
        ("안녕하세요. 이것은 한국어로 쓴 글입니다.", "euc_kr"),
        ("Un café très français, où l'été fut brûlé à Noël par un élève.", "latin-1"),
        ("“Naïve” façade – déjà vu: Zoë’s résumé cost 20€.", "cp1252"),
    ],
)
def test_other_languages_in_their_old_encodings_are_right(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)) == text


@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"])).filter(
        lambda text: not text.startswith("\ufeff")
    )
)
def test_valid_utf8_is_never_taken_for_anything_else(text: str) -> None:
    assert decode(text.encode()) == text


def test_ascii_in_utf16_without_a_mark_is_text_and_not_binary() -> None:
    for encoding in ("utf-16-le", "utf-16-be"):
        assert (
            decode("plain words\r\nand more of them\r\n".encode(encoding)) == "plain words\r\nand more of them\r\n"
        )


def test_utf8_with_a_few_bad_bytes_is_a_fault_that_names_the_byte() -> None:
    raw = ("文字" * 100).encode() + b"\xff\xfe" + "尾".encode()
    with pytest.raises(Undecodable) as caught:
        decode(raw)
    assert (caught.value.reason, caught.value.byte) == ("undecodable", 600)


def test_one_bad_byte_in_english_is_a_fault_and_not_a_letter() -> None:
    with pytest.raises(Undecodable) as caught:
        decode(b"hello \xff world")
    assert (caught.value.reason, caught.value.byte) == ("undecodable", 6)


@pytest.mark.parametrize(
    "raw",
    [
        bytes(range(256)) * 20,
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(200)),
        b"\x7fELF\x02\x01\x01" + bytes(64) + bytes(range(128, 256)),
        b"text\0\0\0\0\0\0\0\0more",
    ],
)
def test_binary_bytes_are_called_binary(raw: bytes) -> None:
    with pytest.raises(Undecodable) as caught:
        decode(raw)
    assert caught.value.reason == "binary"


@given(st.binary(max_size=300))
def test_any_bytes_are_text_or_a_fault(raw: bytes) -> None:
    byte, text = 0, ""
    try:
        text = decode(raw)
    except Undecodable as error:
        byte = error.byte
    assert 0 <= byte <= len(raw)
    text.encode("utf-8", errors="surrogatepass")


def test_a_declared_encoding_is_believed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("жук".encode("koi8-r"))
    assert texts(read_all(tmp_path, encoding="koi8-r")) == ["жук"]
    assert faults(read_all(tmp_path, encoding="utf-8")) == [("byte 0", "undecodable")]


def test_lines_of_a_gbk_file_are_decoded_one_by_one(tmp_path: Path) -> None:
    lines = [f"{SIMPLIFIED}{number}" for number in range(50)]
    (tmp_path / "a.txt").write_bytes("\n".join(lines).encode("gbk"))
    assert texts(read_all(tmp_path, documents="line")) == lines


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_lines_of_wide_encodings_are_cut_at_characters_and_not_at_bytes(tmp_path: Path, encoding: str) -> None:
    lines = ["上\u0a0a下", "second", "\u0d0a third"]  # characters whose bytes look like line ends
    (tmp_path / "a.txt").write_bytes("\r\n".join(lines).encode(encoding))
    assert texts(read_all(tmp_path, documents="line")) == lines


MIXED = [
    ("今天我们一起去公园，大家都很高兴。", "utf-8"),
    ("今天我们一起去公园，大家都很高兴。", "gb18030"),
    ("今天我們一起去公園，大家都很高興。", "big5hkscs"),
    ("これはとても大切な問題だと思います。", "cp932"),
    ("Là-bas, où étaient-ils déjà allés à Noël?", "cp1252"),
    ("plain", "ascii"),
]


@given(st.lists(st.sampled_from(MIXED), min_size=1, max_size=8))
def test_a_file_of_lines_in_several_encodings_is_read_line_by_line(lines: list[tuple[str, str]]) -> None:
    raw = b"\n".join(text.encode(encoding) for text, encoding in [MIXED[0], *lines, MIXED[1], MIXED[0]])
    assert decode(raw) == "\n".join(text for text, _ in [MIXED[0], *lines, MIXED[1], MIXED[0]])


def test_a_line_that_fits_no_encoding_is_a_fault_with_its_byte() -> None:
    good = "今天我们一起去公园。\n".encode()
    with pytest.raises(Undecodable) as caught:
        decode(good + b"ab\xff\xfe\xfdcd\n" + good)
    assert caught.value.byte == len(good) + 2


@pytest.mark.parametrize(("text", "encoding"), MIXED)
def test_a_line_in_another_encoding_than_its_file_is_read_in_its_own(text: str, encoding: str) -> None:
    assert decode_line(text.encode(encoding), "utf-8") == text


def test_a_line_with_a_damaged_byte_is_no_line_of_another_encoding() -> None:
    with pytest.raises(Undecodable, match="utf-8"):
        decode_line("今天我们一起".encode()[:-1], "utf-8")
    with pytest.raises(Undecodable, match="utf-8"):
        decode_line(b"caf\xe9", "utf-8")

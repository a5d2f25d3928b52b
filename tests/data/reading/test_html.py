"""The readable text of pages, however they are written."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.extraction import extract_text
from stoker.data.reading.decoding import Undecodable
from stoker.data.reading.html import decode_page, known_encoding
from tests.data.reading.reading_files import read_all, texts


def test_scripts_styles_menus_and_forms_are_dropped() -> None:
    page = (
        "<html><head><title>T</title><style>p{color:red}</style></head><body><nav><a>Home</a></nav>"
        "<script>if (a < b) document.write('<p>no</p>')</script><p>Kept.</p><form><button>Go</button></form>"
        "<footer>About</footer></body></html>"
    )
    assert extract_text(page) == "Kept."


def test_code_blocks_keep_their_lines_and_blanks() -> None:
    code = "def f(x):\n    if x:\n\n\n        return x   # done\n"
    assert code.rstrip("\n") in extract_text(f"<p>See</p><pre><code>{code}</code></pre><p>End</p>")


def test_words_of_neighbouring_blocks_are_not_run_together() -> None:
    page = "<section><p>First</p>tail<div><h4>Head</h4><p>More</p>end</div><div>x<br>y</div></section>"
    assert extract_text(page).split() == ["First", "tail", "Head", "More", "end", "x", "y"]


def test_inline_tags_do_not_cut_words() -> None:
    assert (
        extract_text("<p>Sj<b>ät</b>te <nobr>AP-fonden</nobr>, <i>H</i><sub>2</sub>O</p>")
        == "Sjätte AP-fonden, H2O"
    )


def test_lists_tables_and_entities_are_readable() -> None:
    page = "<ul>Of:<li>one &amp; two<li>three</ul><table><tr><td>a<td>b<tr><td>c<td>d</table>x &lt; y"
    assert extract_text(page) == "Of:\n- one & two\n- three\n\na\tb\nc\td\n\nx < y"


def test_what_comes_behind_an_unclosed_head_or_menu_item_is_kept() -> None:
    assert extract_text("<head><title>T</title><body><p>Text") == "Text"
    assert extract_text("<div><nav><ul><li>Home</div><p>Text</p>") == "Text"


@given(
    st.lists(
        st.sampled_from(
            [
                "<p>",
                "</p>",
                "<pre>",
                "</pre>",
                "<nav>",
                "<script>",
                "</script>",
                "<!--",
                "-->",
                "a&b;",
                "<",
                "</x",
                "\n",
                " t ",
            ]
        )
    ).map("".join)
)
def test_any_soup_gives_some_text(page: str) -> None:
    assert "<p>" not in extract_text(page) or "script" in page or "<!--" in page


@pytest.mark.parametrize(
    ("declared", "encoding"),
    [("gb2312", "gbk"), ("big5", "big5"), ("utf-8", "utf-8"), ("no-such", "utf-8"), ("utf-8", "gbk")],
)
def test_a_page_is_decoded_by_mark_declaration_or_detection(tmp_path: Path, declared: str, encoding: str) -> None:
    text = "繁體中文的網頁，我們說話" if encoding == "big5" else "中文网页，我们说话"
    page = f'<html><head><meta charset="{declared}"></head><body><p>{text}</p></body></html>'
    (tmp_path / "a.html").write_bytes(page.encode(encoding))
    assert texts(read_all(tmp_path)) == [text]


def test_a_byte_order_mark_wins_over_the_declaration(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes('<meta charset="gbk"><p>文字</p>'.encode("utf-16"))
    assert texts(read_all(tmp_path)) == ["文字"]


CHINESE = "我们可以看到，这个问题已经解决了，大家都很高兴，明天还要继续讨论其他的问题。"
JAPANESE = "これはとても大切な問題だと思いますので、明日もう一度みんなで話し合いましょう。"
RUSSIAN = "Мы уже решили этот вопрос, и все рады, но завтра продолжим обсуждение других вопросов."
ARABIC = "هذه مسألة مهمة جدا ونعتقد أننا سنناقشها مرة أخرى غدا مع الجميع في المكتب."
FRENCH = "Ça déçoit : où étaient-ils là-bas, à Noël, près de l'île d'Oléron, où l'on fêtait l'été ?"
GERMAN = "Übermäßig größere Öfen heizen über Nacht die Räume der Häuser für alle Gäste."
IN = [
    (CHINESE, "gb18030"),
    (JAPANESE, "euc_jp"),
    (JAPANESE, "shift_jis"),
    (RUSSIAN, "cp1251"),
    (RUSSIAN, "koi8_r"),
    (ARABIC, "cp1256"),
    (FRENCH, "cp1252"),
    (GERMAN, "cp1252"),
]


@pytest.mark.parametrize(("text", "encoding"), IN, ids=[f"{text[:4]} {encoding}" for text, encoding in IN])
@pytest.mark.parametrize("declared", ["iso-8859-1", "windows-1252", "us-ascii", "utf-8", "gb9999", None])
def test_a_wrong_declaration_is_not_believed(text: str, encoding: str, declared: str | None) -> None:
    meta = "" if declared is None else f'<meta charset="{declared}">'
    page = f"<html><head>{meta}<title>x</title></head><body><article>{f'<p>{text}</p>' * 3}</article></body></html>"
    assert extract_text(decode_page(page.encode(encoding))).count(text) == 3
    outside = None if declared is None else known_encoding(declared)
    assert extract_text(decode_page(page.encode(encoding), outside)).count(text) == 3


@given(st.binary(max_size=300), st.sampled_from([None, "iso-8859-1", "utf-8", "gb18030", "utf-16"]))
def test_any_bytes_are_some_text_or_told_to_be_none(raw: bytes, declared: str | None) -> None:
    try:
        text = decode_page(b"<p>" + raw, declared)
    except Undecodable as error:
        text = error.reason
    assert text == "" or text in ("undecodable", "binary") or "\0" not in extract_text(text)

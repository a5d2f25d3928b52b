"""Lines that were read in the wrong encoding are read again; lines that were not stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.misread import suspicious_lines
from stoker.data.mojibake import repair
from tests.data.written_text import MANNERS

SIMPLIFIED = "我们可以看到，这个问题已经解决了，大家都很高兴。"
TRADITIONAL = "我們可以看到，這個問題已經解決了，大家都很高興。"
JAPANESE = "これはとても大切な問題だと思います。"
RUSSIAN = "Мы уже решили этот вопрос, и все рады."
KOREAN = "이것은 매우 중요한 문제라고 생각합니다."
DAMAGE = [
    (SIMPLIFIED, "utf-8", "latin-1"),
    (SIMPLIFIED, "gb18030", "latin-1"),
    (SIMPLIFIED, "gb18030", "cp1252"),
    (SIMPLIFIED, "gb18030", "big5hkscs"),
    (TRADITIONAL, "big5hkscs", "latin-1"),
    (TRADITIONAL, "big5hkscs", "gb18030"),
    ("错误队列的已收到的数据部分包含错误包。", "gb18030", "big5hkscs"),
    ("当您选择「艺术字」对象时会打开「艺术字」工具栏。", "gb18030", "big5hkscs"),
    ("横擔拄杖入山，坐斷高峰境界。", "gb18030", "big5hkscs"),
    ("選取 [列印時隱藏] 以隱藏列印文件中的受保護儲存格。", "big5hkscs", "gb18030"),
    ("52 錯誤的檔案名稱或檔案編號", "big5hkscs", "gb18030"),
    (JAPANESE, "cp932", "latin-1"),
    (JAPANESE, "cp932", "gb18030"),
    (KOREAN, "cp949", "latin-1"),
    (RUSSIAN, "utf-8", "cp1251"),
]


def misread(text: str, real: str, read_as: str) -> str:
    """As browsers have it: a byte without a character comes through as a control character."""
    raw = text.encode(real)
    try:
        return raw.decode(read_as)
    except UnicodeDecodeError:
        return "".join(bytes([byte]).decode(read_as, "ignore") or chr(byte) for byte in raw)


@pytest.mark.parametrize(
    ("text", "real", "read_as"), DAMAGE, ids=[f"{real} as {read}: {text[:4]}" for text, real, read in DAMAGE]
)
def test_a_damaged_line_is_read_again_and_those_around_it_stay(text: str, real: str, read_as: str) -> None:
    damaged = misread(text, real, read_as)
    assert damaged != text
    around = f"{TRADITIONAL}\nplain\nDéjà vu à Zürich, naïvement.\n"
    assert repair(f"{around}{damaged}\n{around}") == f"{around}{text}\n{around}"


@pytest.mark.parametrize(
    "text",
    [
        "Ça déçoit: où étaient-ils là-bas, à Noël, près de l'île d'Oléron?",
        "Þórður Ægisson ætlaði að fá sér öl á Ísafirði í gær.",
        "ÅÄÖ åäö ÉÈÊ ÀÁÂ ÇçÑñ",
        "«»«»«» ©®™ ½¼¾ ±×÷",
        "Аррани, региcтрации, Р. С. Сидоров; СССР, РСФСР",
        "獵橋午憩坐睡 鏖戰疆場 鍛造業 涓涓細流",
        "ﾊﾝｶｸｶﾅ ヴァイオリン",
        "한글은 세종대왕이 만들었다",
        "Ελληνικά αλφάβητο και ελπίδα",
        "ÿþýüûúùøö",
        "Van de opties mag er slechts één gegeven worden, écht één",
        "PENSTYLE [3, 1mm, 2, 4mm] ; ...––...––...––",
        "奇功苟可徵，寧復資蘭蓀。晉庫走龍劒，吳宮傷燕雛。",
        "草離離，髮垂垂。與君桂陽別，令君岳陽待。",
    ],
)
def test_real_text_stays(text: str) -> None:
    assert repair(text) == text


@pytest.mark.parametrize("manner", MANNERS)
def test_clean_text_of_every_manner_stays(manner: str) -> None:
    text = MANNERS[manner](1)
    assert repair(text) == text


@given(
    st.lists(st.sampled_from([SIMPLIFIED, TRADITIONAL, JAPANESE, RUSSIAN, KOREAN, "", "plain", "déjà"]), max_size=8)
)
def test_no_mixture_of_clean_lines_is_changed(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert repair(text) == text
    assert suspicious_lines(text) == []


@given(st.text(max_size=60))
def test_repair_ends_and_gives_text(text: str) -> None:
    for _ in range(8):
        again = repair(text)
        if again == text:
            return
        text = again
    assert repair(text) == text

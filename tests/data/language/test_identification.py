"""Identification of languages: sentences written for this test, in the languages and mixtures that it names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.data.language.identification import WINDOW, WINDOWS, identify, languages

SENTENCES = {
    "en": "We were late for the train, so my brother asked the driver to hurry.",
    "zh": "我们赶不上火车了，所以哥哥请司机开快一点。",
    "fr": "Nous étions en retard, alors mon frère a demandé au chauffeur de se dépêcher.",
    "de": "Wir waren zu spät dran, deshalb bat mein Bruder den Fahrer, sich zu beeilen.",
    "es": "Llegábamos tarde al tren, así que mi hermano le pidió al conductor que se diera prisa.",
    "it": "Eravamo in ritardo per il treno, così mio fratello ha chiesto all'autista di sbrigarsi.",
    "nl": "We waren te laat voor de trein, dus vroeg mijn broer de chauffeur om op te schieten.",
    "pl": "Byliśmy spóźnieni na pociąg, więc mój brat poprosił kierowcę, żeby się pospieszył.",
    "ru": "Мы опаздывали на поезд, поэтому брат попросил водителя поторопиться.",
    "uk": "Ми запізнювалися на потяг, тому брат попросив водія поквапитися.",
    "tr": "Trene geç kalmıştık, bu yüzden kardeşim şoförden acele etmesini istedi.",
    "vi": "Chúng tôi bị trễ chuyến tàu, vì vậy anh tôi bảo tài xế đi nhanh hơn.",
    "ja": "電車に遅れそうだったので、兄は運転手に急いでくれと頼んだ。",
    "ko": "기차에 늦어서 형이 기사에게 서둘러 달라고 부탁했다.",
    "el": "Είχαμε αργήσει για το τρένο, οπότε ο αδερφός μου ζήτησε από τον οδηγό να βιαστεί.",
    "th": "เราไปขึ้นรถไฟสาย พี่ชายจึงขอให้คนขับรีบ",
    "hi": "हमें ट्रेन के लिए देर हो रही थी, इसलिए मेरे भाई ने ड्राइवर से जल्दी करने को कहा।",
    "ar": "كنا متأخرين عن القطار فطلب أخي من السائق أن يسرع.",
}
CODE = {
    "python": "for name, value in sorted(self._items.items()):\n    if value is not None:\n        out[name] = 1\n",
    "c": "static int read_all(struct file *f, char *buf) {\n\tif (!f || !buf)\n\t\treturn -1;\n\treturn 0;\n}\n",
    "javascript": "const items = list.filter((x) => x.id !== null);\nexport default function App() { return 1; }\n",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_a_sentence_is_known_by_its_language(language: str) -> None:
    found = identify(SENTENCES[language])
    assert found.label == language
    assert found.label in languages()


@pytest.mark.parametrize("language", CODE)
def test_code_is_told_from_english(language: str) -> None:
    assert identify(CODE[language]).label == "code"


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("<anna> so it was not a horse\n<anna> it was only", "en"),
        ('old!"\n"As a gardener, yes," she replied and left', "en"),
        ('into the river.\n\t\t-- Captain Ahab, "The Whale"', "en"),
        ('"Every thing should be as simple as po 该节点．这样，每次都', "mixed"),
    ],
)
def test_talk_and_quotations_are_no_code(text: str, label: str) -> None:
    assert identify(text).label == label


@pytest.mark.parametrize("order", [1, -1])
def test_chinese_with_as_much_english_is_mixed_and_with_a_few_words_chinese(order: int) -> None:
    both = [SENTENCES["zh"], SENTENCES["en"]][::order]
    assert identify(" ".join(both)).label == "mixed"
    assert identify(SENTENCES["zh"] * 3 + "（hurry up）").label == "zh"


def test_code_inside_prose_has_its_share() -> None:
    text = SENTENCES["en"] * 6 + "\n\n" + CODE["c"] * 4
    shares = identify(text).shares
    assert shares["code"] > 0.25
    assert shares["en"] > 0.25


def test_long_text_is_sampled_over_its_length() -> None:
    half = WINDOW * WINDOWS * 20
    english, chinese = SENTENCES["en"] * (half // 60), SENTENCES["zh"] * (half // 20)
    shares = identify(english + chinese).shares
    assert shares["en"] > 0.2
    assert shares["zh"] > 0.4


@pytest.mark.parametrize("text", ["", " \n", "12:30 — 14:00", "★☆★", "\U0001f600"])
def test_text_without_letters_has_no_language(text: str) -> None:
    assert identify(text).label is None


@given(st.text(max_size=300))
def test_any_text_has_shares_that_make_one(text: str) -> None:
    found = identify(text)
    assert identify(text) == found
    assert found.label is None or abs(sum(found.shares.values()) - 1) < 1e-6
    assert 0 <= found.confidence <= 1 + 1e-9


def test_the_model_is_small() -> None:
    from importlib.resources import files

    assert len(files("stoker.data.language").joinpath("model.npz").read_bytes()) < 300_000

"""Unsafe content is a matter of density: a text that speaks of it is not one that sells it."""

from __future__ import annotations

import pytest

from stoker.data.document import Document
from stoker.data.filters.phrases import PhraseBook
from stoker.data.filters.text import Text
from stoker.data.operators.unsafe import NoteUnsafe
from stoker.data.unsafe import UNSAFE, unsafe_density
from stoker.recipe import Cleaning

ADVERTISEMENTS = {
    "English pornography": "Free porn videos, live sex cams, nude girls, uncensored, 18 only. Join now!",
    "English gambling": "Online slots, casino bonus, no deposit casino! Poker, roulette, blackjack: bet now!",
    "Chinese pornography": "裸聊直播，成人视频，同城交友约，美女少妇激情诱惑，色情网站大全，点击进入。",
    "Chinese gambling": "线上赌场开户送彩金，百家乐、老虎机、时时彩，真人荷官，博彩平台返水高，立即下注！",
    "Chinese crime": "代开发票，办假证，出售迷药，套现秒到，银行卡四件套，洗钱渠道，全国发货。",
}
OTHERS = {
    "news of a trial": (
        "The court heard that the defendant had run an escort agency from a flat near the station. Police found "
        "slot machines in the cellar of the casino next door. The judge spoke of gambling, of fraud and of threats "
        "against witnesses, and sentenced him to four years. His lawyer said that he would appeal, since the "
        "witnesses had contradicted each other on the dates and on who had been in the building that evening."
    ),
    "medicine": (
        "Sex differences in the prevalence of the disease have been described. Adults with lesions that the naked "
        "eye can see should be examined. In amateur athletes the infection is seen more often."
    ),
    "law in Chinese": (
        "以营利为目的，聚众赌博或者以赌博为业的，处三年以下有期徒刑、拘役或者管制，并处罚金。开设赌场的，处五年以下"
        "有期徒刑。制作、复制、出版、贩卖、传播淫秽物品牟利的，依照本法规定处罚。走私、贩卖、运输、制造毒品的，追究责任。"
    ),
    "scripture": "And they were both naked, the man and his wife, and were not ashamed.",
    "a recipe": "成人每天吃三到五份水果，美女和少妇也一样。",
}


@pytest.mark.parametrize("name", ADVERTISEMENTS)
def test_advertisements_are_beyond_the_threshold(name: str) -> None:
    assert UNSAFE.rejects({UNSAFE.measure: unsafe_density(Text(ADVERTISEMENTS[name], "prose"))})


@pytest.mark.parametrize("name", OTHERS)
def test_what_speaks_of_it_is_below(name: str) -> None:
    assert unsafe_density(Text(OTHERS[name], "prose")) < UNSAFE.threshold


def test_by_default_it_is_noted_and_nothing_is_dropped() -> None:
    page = Document("s", "prose", "en", "1", "f", "file", ADVERTISEMENTS["English pornography"])
    noting = NoteUnsafe.of(Cleaning())
    dropping = NoteUnsafe.of(Cleaning(unsafe="drop"))
    assert noting is not None
    assert dropping is not None
    noted, dropped = noting(page), dropping(page)
    assert noted.measures == dropped.measures
    assert (noted.reason, dropped.reason) == (None, "unsafe")
    assert (dict(noting.reasons), set(dropping.reasons)) == ({}, {"unsafe"})
    assert NoteUnsafe.of(Cleaning(unsafe="off")) is None


def test_another_threshold_decides_otherwise() -> None:
    page = Document("s", "prose", "en", "1", "f", "file", ADVERTISEMENTS["English pornography"])
    lenient = NoteUnsafe.of(Cleaning(unsafe="drop", thresholds={"unsafe": 0.9}))
    assert lenient is not None
    assert lenient(page).reason is None


def test_every_term_is_found_where_it_stands() -> None:
    book = PhraseBook("stoker.data.unsafe", "explicit.txt", "suggestive.txt")
    for number, phrase in enumerate(book.phrases):
        counts = book.counts(Text(f"x {phrase.strip()} y", "prose").code_points)
        assert counts[number] == 1 or any(
            counts[other] and phrase.strip() in book.phrases[other].strip() for other in range(len(counts))
        ), phrase

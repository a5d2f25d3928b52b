"""Text made for tests: sentences drawn from small vocabularies, in four manners, by seed."""

from __future__ import annotations

import random

_ENGLISH_WORDS = (
    "river stone winter market garden lantern captain letter window harvest copper village thunder mirror orchard "
    "engine harbour candle meadow compass ladder feather kettle saddle timber canyon pepper velvet anchor basket "
    "walked found carried opened followed painted gathered watched repaired crossed measured counted remembered "
    "quiet narrow ancient bright heavy broken distant hollow silver early gentle sudden bitter the a of in under "
    "with near before after between across behind every this that and but while because"
)
_ENGLISH = _ENGLISH_WORDS.split()
_CHINESE = (
    "山水风云花月春秋江河湖海日夜星辰人生天地东西南北村庄城市道路桥梁船车马牛羊鸟鱼树木竹林书信琴棋诗画酒茶米饭衣服老少男女"
    "走来去看听说想写读问答开关买卖种收做用大小多少高低长短新旧早晚快慢好坏冷热清明白红青黄黑是的在有不了和与而这那其之于为"
)
_NAMES_WRITTEN = "index total value result count items buffer offset node left right parent cache token stream size"
_NAMES = _NAMES_WRITTEN.split()
_OPERATORS = ("+", "-", "*", "//", "%", "<<", "&", "|")


def english(seed: int, words: int = 300) -> str:
    """English-like prose of about that many words."""
    draw = random.Random(f"english {seed}")
    out, sentence = [], []
    for _ in range(words):
        sentence.append(draw.choice(_ENGLISH))
        if len(sentence) > 6 and draw.random() < 0.15:
            out.append(" ".join(sentence).capitalize() + draw.choice(".,;") + draw.choice((" ", "\n")))
            sentence = []
    return "".join(out) + " ".join(sentence) + "."


def chinese(seed: int, characters: int = 500) -> str:
    """Chinese-like prose of about that many characters, without a space."""
    draw = random.Random(f"chinese {seed}")
    out = []
    for _ in range(characters):
        out.append(draw.choice(_CHINESE))
        if draw.random() < 0.1:
            out.append(draw.choice("，。；"))
    return "".join(out) + "。"


def code(seed: int, lines: int = 60) -> str:
    """Python-like code."""
    draw = random.Random(f"code {seed}")

    def name() -> str:
        return f"{draw.choice(_NAMES)}_{draw.randrange(30)}"

    out = []
    for _ in range(lines):
        out.append(
            draw.choice(
                (
                    f"def {name()}({name()}, {name()}):",
                    f"    {name()} = {name()} {draw.choice(_OPERATORS)} {name()}[{draw.randrange(100)}]",
                    f"    if {name()} < {draw.randrange(1000)}:",
                    f"        return {name()}.{name()}({name()})",
                    f"    for {name()} in range({name()}):",
                )
            )
        )
    return "\n".join(out) + "\n"


def mathematics(seed: int, lines: int = 50) -> str:
    """LaTeX-like mathematics."""
    draw = random.Random(f"mathematics {seed}")
    letters = "abcxyzuvw"
    out = []
    for _ in range(lines):
        a, b, c = (draw.choice(letters) for _ in range(3))
        n, m = draw.randrange(2, 99), draw.randrange(999)
        out.append(
            draw.choice(
                (
                    f"Let ${a} \\in \\mathbb{{R}}^{n}$ and $f({b}) = {m}{b}^2 - {c}$.",
                    f"\\int_0^{n} {a}^{m} \\, d{a} = \\frac{{{n}}}{{{b}+1}}",
                    f"Then $\\sum_{{{a}=1}}^{{{n}}} {b}_{a} \\le {c} + {m}$ holds.",
                )
            )
        )
    return "\n".join(out)


MANNERS = {"english": english, "chinese": chinese, "code": code, "mathematics": mathematics}


def edited(text: str, manner: str, edits: int, seed: int) -> str:
    """`text` with that many words (or Chinese characters) replaced by others of its manner."""
    draw = random.Random(f"edited {seed}")
    if manner == "chinese":
        characters = list(text)
        for place in draw.sample([i for i, c in enumerate(characters) if c not in "，。；"], edits):
            characters[place] = draw.choice(_CHINESE)
        return "".join(characters)
    pieces = text.split(" ")
    for place in draw.sample(range(len(pieces)), edits):
        newline = "\n" if "\n" in pieces[place] else ""
        pieces[place] = draw.choice(_ENGLISH) + str(draw.randrange(1000)) + newline
    return " ".join(pieces)

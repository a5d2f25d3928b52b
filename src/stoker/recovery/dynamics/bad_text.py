"""Text that should not be in a corpus, of the kinds that are found there."""

from __future__ import annotations

import random
from collections.abc import Callable

_FOREIGN = {
    "ru": (
        "и в не на что он как это по но она так его из за мы бы ты же все было только от меня еще нет о "
        "ему теперь когда даже вдруг если уже или ни быть был него до вас нибудь опять вам ведь там "
        "потом себя ничего может надо кто этот того потому какой совсем здесь почти мой тем чтобы время "
        "дом рука дело жизнь день город"
    ),
    "fi": (
        "ja on ei se hän oli että mutta niin kun mitä jos joka minä sinä vain myös nyt sitten kuin ovat "
        "olla sen siitä hänen joku kaikki päivä talo vesi metsä järvi kaupunki lapsi nainen mies vuosi "
        "aika elämä työ kieli sana kirja matka ystävä silmä käsi syksy talvi kesä kevät aurinko kuu "
        "tähti tuuli sade lumi jää tuli"
    ),
}
_TAGS = ("div", "span", "li", "td", "a", "p", "h3", "section")
_CLASSES = ("nav-item", "col-md-6", "btn btn-primary", "footer__link", "js-toggle", "card-body", "mt-2 px-4")
_PHRASE_WORDS, _PHRASE_CHARACTERS = 6, 12


def bad_text(what: str, text: str, dice: random.Random) -> str:
    """Bad text of the kind `what` made of `text`, about as long or longer. Never empty."""
    makers: dict[str, Callable[[str, random.Random], str]] = {
        "garbled": _garbled,
        "html": _html,
        "language": _foreign,
        "repetition": _repeated,
        "hard": _figures,
    }
    return makers[what](text, dice)


def _garbled(text: str, dice: random.Random) -> str:
    """What its bytes are in another encoding, with what was lost on the way."""
    content = text.encode() + b" "
    wrong = content.decode("utf-16-le" if dice.random() < 0.5 else "utf-16-be", errors="replace")
    return "".join("\N{REPLACEMENT CHARACTER}" if dice.random() < 0.1 else one for one in wrong)


def _html(text: str, dice: random.Random) -> str:
    parts = ['<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><script>window.dataLayer=[];</script>']
    for word in _pieces(text):
        tag, number = dice.choice(_TAGS), dice.randrange(10**4)
        link = f' href="/{word.lower()}?id={number}&amp;ref=nav"' if tag == "a" else f' id="{tag}-{number}"'
        parts.append(f'<{tag} class="{dice.choice(_CLASSES)}"{link}>{word}</{tag}>&nbsp;')
    return "".join(parts)


def _foreign(text: str, dice: random.Random) -> str:
    """Words of Russian, or of Finnish, in no order that means anything."""
    words = _FOREIGN[dice.choice(sorted(_FOREIGN))].split()
    sentences, written = [], 0
    while written < max(len(text), 1):
        sentence = " ".join(dice.choice(words) for _ in range(dice.randint(5, 14))).capitalize() + ". "
        sentences.append(sentence)
        written += len(sentence)
    return "".join(sentences)


def _repeated(text: str, dice: random.Random) -> str:
    """One phrase of it, over and over."""
    words = text.split()
    if len(words) > _PHRASE_WORDS:
        start = dice.randrange(len(words) - _PHRASE_WORDS)
        phrase = " ".join(words[start : start + _PHRASE_WORDS]) + " "
    else:
        start = dice.randrange(max(1, len(text) - _PHRASE_CHARACTERS))
        phrase = text[start : start + _PHRASE_CHARACTERS] or "again "
    return phrase * (len(text) // len(phrase) + 1)


def _figures(text: str, dice: random.Random) -> str:
    """A register: its words, in another order, with numbers that nothing foretells."""
    words = _pieces(text)
    dice.shuffle(words)
    return "".join(f"{word} {dice.randrange(10**5)}.{dice.randrange(100):02d}; " for word in words)


def _pieces(text: str) -> list[str]:
    """Its words, or where there are no spaces some characters each."""
    words = text.split()
    if len(words) * 20 < len(text):
        words = [text[at : at + 3] for at in range(0, len(text), 3)]
    return words or ["nothing"]

"""Causes that lie in the data: what the text is, and how often which of it comes."""

from __future__ import annotations

from collections.abc import Iterator

from stoker.diagnosis.causes.cause import Cause, Sign
from stoker.diagnosis.causes.incident import Incident
from stoker.diagnosis.causes.signs import against_text, of_members, of_replay, of_text, said
from stoker.diagnosis.finding import BENIGN, Kind

_OF_TEXT: tuple[Kind, ...] = (
    "spike", "divergence", "step_rise", "step_drop", "nan", "gradient_growth", "source_drift",
)  # fmt: skip
_OF_BATCHES: tuple[Kind, ...] = (
    "repeated_data", "spike", "divergence", "step_rise", "step_drop", "gradient_growth",
)  # fmt: skip
_OF_MIXTURE: tuple[Kind, ...] = ("mixture_shift", "spike", "divergence", "step_rise", "step_drop", "source_drift")


def _garbled(incident: Incident) -> Iterator[Sign]:
    yield from of_text(incident, "damage", "jumble")
    yield from of_text(incident, "script", share=0.25)
    yield from against_text(incident, "markup")
    yield from against_text(incident, "respelling")
    yield from of_replay(incident, batch=True)


def _html(incident: Incident) -> Iterator[Sign]:
    yield from of_text(incident, "markup")
    yield from against_text(incident, "respelling")
    yield from of_replay(incident, batch=True)


def _language(incident: Incident) -> Iterator[Sign]:
    yield from of_text(incident, "script", "surprise")
    yield from against_text(incident, "damage")
    yield from against_text(incident, "jumble", share=0.25)
    yield from against_text(incident, "markup")
    yield from against_text(incident, "respelling")
    yield from against_text(incident, "repetition", share=0.5)
    yield from of_replay(incident, batch=True)


def _repeated_text(incident: Incident) -> Iterator[Sign]:
    yield from of_members(incident, "repeated_data", cause="repeated_text")
    yield from of_text(incident, "repetition", "sameness")
    yield from against_text(incident, "markup")
    yield from against_text(incident, "respelling")
    yield from of_replay(incident, batch=True)


def _tokenizer(incident: Incident) -> Iterator[Sign]:
    yield from of_text(incident, "respelling")
    yield from of_text(incident, "damage", "jumble", "surprise", share=0.25)
    yield from of_replay(incident, batch=True)


def _oversampled(incident: Incident) -> Iterator[Sign]:
    yield from of_members(incident, "mixture_shift", cause="oversampled_source")


def _mixture(incident: Incident) -> Iterator[Sign]:
    yield from of_members(incident, "mixture_shift", cause="mixture_shift")


def _repeated_batch(incident: Incident) -> Iterator[Sign]:
    yield from of_members(incident, "repeated_data", cause="repeated_batch")


def _hard(incident: Incident) -> Iterator[Sign]:
    """Only what comes back, with nothing else to be said of it."""
    moved = incident.loss_moved
    if moved is None or incident.finding.kind not in ("spike", "gradient_growth"):
        return
    spike = next(iter(incident.of_kind("spike")), incident.finding)
    rows = ((spike.last_step or moved) - moved) // incident.rows.spacing + 1
    score = 4.0 if rows <= 4 else 2.0 if rows <= 12 else -2.0
    yield said("rows until the loss was back", float(rows), moved, score, "few")
    risen = incident.departure(incident.rows.curve("loss"), moved, rows=max(1, min(rows, 4)))
    if risen is not None:
        yield Sign(risen.evidence("loss"), max(-2.0, min(3.0, (risen.deviations - 4.0) / 2)))
    if incident.worst_documents is not None:
        now, before = incident.worst_documents
        yield said("worst loss of a document", now, moved, 1.5 if now > 1.15 * before else -1.0, before)
    for contrast in incident.text.values():
        if contrast.feature in ("markup", "damage", "respelling", "repetition", "script") and contrast.score > 0:
            yield from against_text(incident, contrast.feature, share=0.5)
    if incident.text and all(one.score <= 2 for one in incident.text.values()):
        yield said("text of its documents", "as in other steps", moved, 1.0)
    yield from of_replay(incident, batch=True)


DATA = (
    Cause(
        name="garbled_text",
        group="data",
        kinds=_OF_TEXT,
        signature="The loss jumps at the very step that has the documents, and falls back after them. They hold "
        "replacement characters, control characters, UTF-8 read as Latin-1, or words that mix letters and signs.",
        evidence=_garbled,
        remedy="leave_out_documents",
        false_friends="Tables, code and formulas have many signs, but their source always has; text of another "
        "tokenizer looks garbled when it is spelled out, but its tokens are not those that the tokenizer would "
        "make.",
        source="Kreutzer et al. 2022, Quality at a Glance: An Audit of Web-Crawled Multilingual Datasets "
        "(arXiv:2103.12028)",
        features=("damage", "jumble"),
    ),
    Cause(
        name="html_text",
        group="data",
        kinds=_OF_TEXT,
        signature="Tags and entities make up a share of the documents of the step that they do not have "
        "elsewhere in the source. The loss may rise or, since tags repeat themselves, fall.",
        evidence=_html,
        remedy="leave_out_documents",
        false_friends="Sources of code and of documentation hold tags by right: documents are compared with "
        "others of their own source.",
        source="Penedo et al. 2023, The RefinedWeb Dataset for Falcon LLM (arXiv:2306.01116)",
        features=("markup",),
    ),
    Cause(
        name="wrong_language",
        group="data",
        kinds=_OF_TEXT,
        signature="The letters are of a script that the source does not use, or follow each other as they do "
        "nowhere in it, in text that is otherwise well formed.",
        evidence=_language,
        remedy="leave_out_documents",
        false_friends="Names, quotations and lists of figures: these change which words come, not which letters "
        "follow which. Garbled text has foreign letters too, and damaged ones among them.",
        source="Kreutzer et al. 2022, Quality at a Glance: An Audit of Web-Crawled Multilingual Datasets "
        "(arXiv:2103.12028)",
        features=("script", "surprise"),
    ),
    Cause(
        name="repeated_text",
        group="data",
        kinds=(*_OF_TEXT, "repeated_data"),
        shows=("repeated_data",),
        signature="The documents say the same over and over, or several of the step are one and the same. The "
        "loss of such text falls within it, and what follows suffers.",
        evidence=_repeated_text,
        remedy="leave_out_documents",
        false_friends="A repeated batch is ordinary text that came before; verse, tables and licences repeat "
        "themselves a little.",
        source="Hernandez et al. 2022, Scaling Laws and Interpretability of Learning from Repeated Data "
        "(arXiv:2205.10487)",
        features=("repetition", "sameness"),
    ),
    Cause(
        name="tokenizer_mismatch",
        group="data",
        kinds=_OF_TEXT,
        signature="Spelled out and encoded once more, the documents have other tokens than those the run was "
        "trained on: they were encoded by another tokenizer.",
        evidence=_tokenizer,
        remedy="leave_out_documents",
        false_friends="A stretch that begins inside a word or a character is respelled at its edges; other "
        "stretches of the source are as well. Garbled text has the tokens that the tokenizer makes of it.",
        source="Land and Bartolo 2024, Fishing for Magikarp: Automatically Detecting Under-trained Tokens in "
        "Large Language Models (arXiv:2405.05417)",
        features=("respelling",),
    ),
    Cause(
        name="oversampled_source",
        group="data",
        kinds=_OF_MIXTURE,
        shows=("mixture_shift",),
        signature="For a stretch of steps one source has a larger share of the tokens than before; then the "
        "shares are as they were. The loss moves by as much as the source's own loss differs.",
        evidence=_oversampled,
        remedy="check_mixture",
        false_friends="Small batches take their sources in turns: shares are averaged over four rows, and held "
        "against how far four rows differed before. A mixture that does not come back is a mixture shift.",
        source="Xie et al. 2023, DoReMi: Optimizing Data Mixtures Speeds Up Language Model Pretraining "
        "(arXiv:2305.10429)",
    ),
    Cause(
        name="mixture_shift",
        group="data",
        kinds=_OF_MIXTURE,
        shows=("mixture_shift",),
        signature="From a step on the sources have other shares of the tokens, and keep them. The level of the "
        "loss changes, that of each source hardly does.",
        evidence=_mixture,
        remedy="check_mixture",
        false_friends="A stage that the recipe means; a source whose own loss changes (then its text did).",
        source="Ye et al. 2024, Data Mixing Laws (arXiv:2403.16952)",
    ),
    Cause(
        name="repeated_batch",
        group="data",
        kinds=_OF_BATCHES,
        shows=("repeated_data",),
        signature="A batch, or a part of it, comes again in steps that follow. Its loss falls step by step, and "
        "jumps up when other text comes.",
        evidence=_repeated_batch,
        remedy="check_sampler",
        false_friends="A step that the run did again after going back has one row only, and a second epoch has "
        "other batches. An order of samples that begins anew repeats many different batches.",
        source="Lee et al. 2022, Deduplicating Training Data Makes Language Models Better (arXiv:2107.06499)",
    ),
    Cause(
        name=BENIGN,
        group="data",
        kinds=("spike", "gradient_growth"),
        signature="Loss and gradients stand out for a few rows and come back by themselves; a few documents have "
        "a high loss, and their text is what the source has elsewhere. Nothing is wrong.",
        evidence=_hard,
        remedy="none",
        false_friends="Everything else that spikes: this is named only where no other cause shows itself.",
        source="Chowdhery et al. 2022, PaLM (arXiv:2204.02311), section 5.1: the same batches do not spike from "
        "another state",
    ),
)

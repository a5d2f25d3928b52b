"""The `data` section: which text, how it is cleaned, selected and mixed."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from stoker.recipe.cleaning import Cleaning
from stoker.recipe.deduplication import Deduplication
from stoker.recipe.mixing import Mixing
from stoker.recipe.section import Section
from stoker.recipe.source import Source
from stoker.recipe.synthetic import require_share


class Data(Section):
    """Which text is trained on and how it is prepared."""

    sources: tuple[Source, ...] = Field(min_length=1)
    """The bodies of text, in the order that decides which copy of a duplicate is kept (earlier wins)."""
    prepared: str = "prepared"
    """Folder for prepared corpora, relative to the recipe; each is kept under a fingerprint of its inputs. Or a URL
    that fsspec can write to: then they are made in `prepared_cache` and published there, and whoever asks for one
    fetches it once."""
    prepared_cache: str | None = None
    """Folder of this machine, relative to the recipe, for corpora that are made here or fetched where `prepared` or
    `corpus` is a URL, or one of `deduplication.against`; by default `prepared` beside the recipe."""
    corpus: str | None = None
    """A corpus that is prepared already, such as `stoker data import-megatron` writes, relative to the recipe; or
    the URL of one that `stoker prepare` published. It is trained on as it is: `sources` name its sources and their
    weights, and their text is not read."""
    on_error: Literal["skip", "stop"] = "stop"
    """A corrupt line, file or archive stops the preparation with its file, line and byte; or is counted, named in
    the ledger and skipped, up to `error_budget`."""
    error_budget: float = Field(default=0.001, ge=0, le=1)
    """Share of the documents of each source that may be such faults before the preparation stops; ten always may.
    Documents that end a worker process are among them, whatever `on_error` says."""
    document_seconds: float | None = Field(default=10, gt=0)
    """Processor seconds that reading or cleaning a document of up to a megabyte may take, and again for each
    further one; what takes longer is set aside as `poisoned`. None lets it take forever."""
    reuse: bool = False
    """Keep each part of the input as it was read, cleaned and signed (the cleaned text, and 4 bytes for each of
    `deduplication.permutations` and each document), and read only what is new when a file or source is added."""
    workers: int | None = Field(default=None, ge=1)
    """Worker processes for preparation; by default one for each processor, at most two. The output is the same."""
    worker_memory_gb: float | None = Field(default=None, ge=1)
    """Gigabytes that one worker process may take; by default its share of nine tenths of the machine's memory, and
    at least 2. A document that needs more is set aside as `poisoned`."""
    worker_idle_seconds: float | None = Field(default=300, gt=0)
    """Seconds by the clock for which a worker process may use no processor while it works on a document, as one
    does that waits for what never comes; then that is set aside as `poisoned`. None lets it wait for ever."""
    executor: Literal["local", "ray"] = "local"
    """Where the work is done: in processes of this machine, or in tasks of the Ray cluster that `RAY_ADDRESS` names
    (of one on this machine without it). The output is the same."""
    cleaning: Cleaning = Cleaning()
    deduplication: Deduplication = Deduplication()
    mixture: Mixing = Mixing()
    held_out: float = Field(default=0.01, ge=0, lt=0.5)
    """Share of documents held out for evaluation, chosen by a hash of their text as it was read. That is before
    anything is removed, so that cleaning moves no document between the splits."""
    synthetic_share_at_most: float | None = Field(default=None, ge=0, lt=1)
    """Share of the training text that may be of `synthetic` sources. Weights that give them more are refused. Where
    sources are taken in proportion to their size, synthetic documents are drawn by content until their bytes are
    within it, and the others dropped as `over_synthetic_share`. None limits nothing."""
    shard_tokens: int = Field(default=2**24, ge=1024)
    """Tokens per shard file."""

    @field_validator("prepared", "corpus", "prepared_cache")
    @classmethod
    def _names_a_place(cls, written: str | None, info: ValidationInfo) -> str | None:
        if written is None:
            return None
        if not written.strip():
            raise ValueError("the path is empty; name a folder, or leave it out")
        if "::" in written and "://" in written:
            raise ValueError(f"`{written}` is a chain of URLs, which a corpus cannot be written to; name one URL")
        if "://" in written and info.field_name == "prepared_cache":
            raise ValueError(f"`{written}` is a URL, and what is fetched is kept on a disk: name a folder")
        return written

    @model_validator(mode="after")
    def _cache_belongs_to_a_url(self) -> Data:
        if self.prepared_cache is not None and not any(
            "://" in (one or "") for one in (self.prepared, self.corpus, *self.deduplication.against)
        ):
            raise ValueError(
                "prepared_cache: neither data.prepared nor data.corpus nor one of data.deduplication.against is a "
                "URL, so nothing is fetched; leave it out"
            )
        return self

    @property
    def prepared_here(self) -> str:
        """The folder of this machine for prepared corpora, relative to the recipe."""
        return (self.prepared_cache or "prepared") if "://" in self.prepared else self.prepared

    @model_validator(mode="after")
    def _synthetic_text_is_within_its_share(self) -> Data:
        if self.synthetic_share_at_most is not None:
            require_share(self.sources, self.mixture, self.synthetic_share_at_most)
        return self

    @model_validator(mode="after")
    def _sources_fit_together(self) -> Data:
        names = [source.name for source in self.sources]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"source names must be unique; repeated: {', '.join(repeated)}")
        weights = [source.weight for source in self.sources]
        if any(weight is None for weight in weights) and any(weight is not None for weight in weights):
            missing = [source.name for source in self.sources if source.weight is None]
            raise ValueError(f"give every source a weight, or none; without one: {', '.join(missing)}")
        if all(weight is not None for weight in weights) and math.fsum(w or 0.0 for w in weights) <= 0:
            raise ValueError("all weights are zero; give at least one source a positive weight")
        self.mixture.require_names(names)
        return self

    @property
    def taken_sources(self) -> tuple[str, ...]:
        """Names of the sources that any step of a run draws from."""
        left_out = [source.name for source in self.sources if source.weight == 0]
        return self.mixture.ever_taken(left_out, [source.name for source in self.sources])

"""Writing a folder that Hugging Face transformers loads, checked before it appears."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from stat import S_IMODE
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from stoker.durable_files import PARTIAL_MARK, explained_disk_errors, publish_folder, write_json
from stoker.errors import BadInput, StokerError
from stoker.model.decoder import Decoder
from stoker.model.huggingface.architectures import architecture_for
from stoker.model.huggingface.configuration import configuration, generation_configuration
from stoker.model.huggingface.library import quiet_transformers, transformers_library
from stoker.model.huggingface.parity import Parity, check_parity
from stoker.model.huggingface.tokenizer_files import check_tokenizer, tokenizer_files
from stoker.model.huggingface.weights import converted
from stoker.recipe import Model

MARK = "stoker-export.json"
"""This file in a folder says that Stoker wrote it, and what was compared."""
SHARD_BYTES = 5 * 10**9
_REMARKS = (
    "A sequence is one document: the mask that keeps packed documents apart in training is no part of this model.",
    "The tokenizer puts BOS before a text if the corpus has it before each document, and never EOS after it.",
)
_WITHOUT_FURTHER = "Modules that predict further tokens (mtp_depth) are left out: no logits depend on them."


@dataclass(frozen=True)
class ExportReport:
    """What was written, and how far transformers is from the model."""

    folder: Path
    architecture: str
    parameters: int
    files: tuple[str, ...]
    parity: Parity
    remarks: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            **asdict(self),
            "folder": str(self.folder),
            "files": list(self.files),
            "remarks": list(self.remarks),
        }

    def as_text(self) -> str:
        """For people: where it is, what it is, and how it was checked."""
        drawn = max(*self.parity.drawn_logits.values(), *self.parity.drawn_gradients.values())
        return (
            f"exported    {self.folder}\n"
            f"class       {self.architecture}, {self.parameters:,} parameters\n"
            f"checked     logits differ by {self.parity.logits:.1e} over {self.parity.tokens:,} tokens; by at most "
            f"{drawn:.1e}, gradients included, with weights drawn anew\n"
            + "".join(f"note        {remark}\n" for remark in self.remarks)
        )


def export_model(
    model: Decoder,
    config: Model,
    tokenizer_path: Path,
    folder: Path,
    *,
    bos_id: int | None,
    eos_id: int | None,
    shard_bytes: int = SHARD_BYTES,
) -> ExportReport:
    """Write `model` (on the CPU) with its tokenizer to `folder`, in fp32, and compare it through transformers.

    The folder appears whole and checked, or not at all; an export that stands there is replaced. Weights are
    split into files of at most `shard_bytes`. Raises `MissingExtra` without transformers; `BadInput` when no
    class of transformers computes this model or `folder` holds something else; `StokerError` when transformers
    computes something else than `model`.
    """
    transformers_library()
    architecture = architecture_for(config)
    folder = folder.resolve()
    _require_free(folder)
    V, L = model.vocabulary_size, model.sequence_length
    contents: dict[str, Any] = {
        "config.json": configuration(architecture, config, V, L, bos_id, eos_id),
        "generation_config.json": generation_configuration(bos_id, eos_id),
        **tokenizer_files(tokenizer_path, V, L, bos_id, eos_id),
    }
    state = {name: tensor.detach().float() for name, tensor in model.state_dict().items()}
    broken = [name for name, tensor in state.items() if not bool(tensor.isfinite().all())]
    if broken:
        raise StokerError(
            f"weights are not finite, so nothing is exported: {', '.join(broken[:3])}; export an earlier step"
        )
    partial = folder.parent / f".{folder.name}{PARTIAL_MARK}{uuid.uuid4().hex[:8]}"
    try:
        with explained_disk_errors(folder):
            partial.mkdir(parents=True)
            for name, content in contents.items():
                write_json(partial / name, content)
            _write_weights(partial, converted(architecture, config, state), shard_bytes)
        with quiet_transformers():
            check_tokenizer(partial)
            parity = check_parity(partial, architecture, model)
        files = tuple(sorted([*(path.name for path in partial.iterdir()), MARK]))
        parameters = sum(p.numel() for name, p in model.named_parameters() if not name.startswith("mtp."))
        remarks = (*_REMARKS, _WITHOUT_FURTHER) if config.mtp_depth else _REMARKS
        report = ExportReport(folder, architecture.name, parameters, files, parity, remarks)
        checked_with = {"stoker": version("stoker"), "transformers": transformers_library().__version__}
        # Without the folder's own path: equal runs write equal bytes wherever they are.
        write_json(partial / MARK, {**report.as_json(), "folder": ".", "versions": checked_with})
        _replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return report


def _require_free(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is not a folder; name a folder to make")
    present = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    foreign = sorted(present - _files_of_export(folder))
    if foreign:
        raise BadInput(
            f"{folder} holds what is no export of Stoker's ({', '.join(foreign[:3])}), which would be lost; "
            "name another folder, or move that away"
        )


def _files_of_export(folder: Path) -> set[str]:
    """Names of the files that an earlier export wrote into `folder`."""
    try:
        return set(json.loads((folder / MARK).read_text(encoding="utf-8"))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _replace(partial: Path, folder: Path) -> None:
    """Put the finished folder in place; an earlier export stays until the moment of the change."""
    with explained_disk_errors(folder):
        earlier = folder.parent / f".{folder.name}{PARTIAL_MARK}{uuid.uuid4().hex[:8]}"
        if folder.exists():
            folder.rename(earlier)
        try:
            publish_folder(partial, folder)
        except BaseException:
            if earlier.exists() and not folder.exists():
                earlier.rename(folder)
            raise
        shutil.rmtree(earlier, ignore_errors=True)


def _write_weights(folder: Path, tensors: Mapping[str, Tensor], shard_bytes: int) -> None:
    """model.safetensors, or numbered files with an index when all together exceed `shard_bytes`."""
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if shards[-1] and size + tensor.nbytes > shard_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    count = len(shards)
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = "model.safetensors" if count == 1 else f"model-{number:05d}-of-{count:05d}.safetensors"
        whole = {name: tensor.contiguous() for name, tensor in shard.items()}
        try:
            save_file(whole, folder / file, metadata={"format": "pt"})
        except SafetensorError as error:  # the library's word for a full disk too
            raise StokerError(f"could not write {file}: {error}; nothing was exported") from error
        # The library makes files that only their owner may read.
        (folder / file).chmod(S_IMODE((folder / "config.json").stat().st_mode))
        places |= dict.fromkeys(shard, file)
    if count > 1:
        total = sum(tensor.nbytes for tensor in tensors.values())
        write_json(
            folder / "model.safetensors.index.json",
            {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))},
        )

"""Encoding and learning of vocabularies against the libraries that others use, on the same text, by processor time.

    python benchmarks/tokens.py FOLDER [--peers PYTHON] [--training 40] [--every 1] [--endless 20]

FOLDER holds text as `*.jsonl.gz`, one object with a `text` a line; the code of Python's standard library is added.
PYTHON is an interpreter with `tiktoken` and `gigatoken`. Every measurement runs in a process of its own, on one
thread. Printed are MB of text (10^6 bytes) for each second of processor time, what was made on first use left out
(a first encoding of a few texts; code that is compiled or fetched from numba's cache), peak memory of the process,
and whether the ids are those of `tokenizers`.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
VOCABULARY = 32_000
ENDLESS = {
    "Chinese without punctuation": "山水风云花月春秋江河湖海",
    "one letter": "a",
    "minified code": "var a=b;function(c){return d+1};",
}


def corpus(folder: Path) -> dict[str, list[str]]:
    """Texts by source."""
    texts = {}
    for file in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            texts[file.name.removesuffix(".jsonl.gz")] = [json.loads(line)["text"] for line in lines]
    code = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    return texts | {"standard library": [file.read_text(encoding="utf-8", errors="ignore") for file in code]}


def megabytes(texts: Iterable[str]) -> float:
    """In UTF-8."""
    return sum(len(text.encode()) for text in texts) / 1e6


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of processor time, and what came out."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def report(seconds: float, size: float, ids: Iterable[Any] | None = None) -> None:
    """One line of JSON for the process that asked."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    digest = hashlib.sha256()
    for one in ids or ():
        digest.update(np.asarray(one, "<u4").tobytes())
    print(json.dumps({"seconds": seconds, "megabytes": size, "peak": peak, "ids": digest.hexdigest()}))


def texts_for(options: argparse.Namespace) -> list[str]:
    """What is encoded."""
    if options.measure_text != "corpus":
        sample = ENDLESS[options.measure_text]
        return [sample * (int(options.endless * 1e6) // len(sample.encode()))]
    return [text for own in corpus(options.folder).values() for text in own[:: options.every]]


def encode_by_engine(options: argparse.Namespace) -> None:
    from stoker.data.tokenizer import TextEncoder
    from stoker.recipe import Tokenizer

    encoder = TextEncoder(options.tokenizer, Tokenizer(path="given", add_bos=False, add_eos=False))
    encoder.encode_documents(["once"])
    assert encoder.encoded_by == "engine", encoder.encoded_by
    texts = texts_for(options)
    seconds, ids = timed(lambda: encoder.encode_documents(texts))
    report(seconds, megabytes(texts), ids)


def encode_by_tokenizers(options: argparse.Namespace) -> None:
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(str(options.tokenizer))
    backend.encode_special_tokens = True
    texts = texts_for(options)
    seconds, found = timed(lambda: backend.encode_batch_fast(texts, add_special_tokens=False))
    report(seconds, megabytes(texts), (encoding.ids for encoding in found))


def encode_by_tiktoken(options: argparse.Namespace) -> None:
    import tiktoken

    written = json.loads(options.tokenizer.read_text(encoding="utf-8"))
    own = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = [byte for byte in range(256) if byte not in own]
    byte_of = {chr(byte): byte for byte in own} | {chr(256 + n): byte for n, byte in enumerate(others)}
    special = {token["content"] for token in written["added_tokens"]}
    ranks = {
        bytes(byte_of[letter] for letter in entry): number
        for entry, number in written["model"]["vocab"].items()
        if entry not in special
    }
    pattern = written["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    encoding = tiktoken.Encoding("measured", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    texts = texts_for(options)
    seconds, ids = timed(lambda: [encoding.encode_ordinary(text) for text in texts])
    report(seconds, megabytes(texts), ids)


def encode_by_gigatoken(options: argparse.Namespace) -> None:
    import gigatoken

    encoder = gigatoken.Tokenizer(str(options.tokenizer))
    texts = texts_for(options)
    seconds, ids = timed(lambda: encoder.encode_batch_list(texts))
    report(seconds, megabytes(texts), ids)


def learn_by_engine(options: argparse.Namespace) -> None:
    from stoker.data.tokenizer import train_tokenizer
    from stoker.recipe import Tokenizer

    texts = corpus(options.folder)
    warm = Tokenizer(vocabulary_size=300, training_megabytes=0.1)
    train_tokenizer(texts, warm, options.tokenizer.with_name("warm.json"))
    settings = Tokenizer(vocabulary_size=VOCABULARY, training_megabytes=options.training)
    seconds, used = timed(lambda: train_tokenizer(texts, settings, options.tokenizer))
    report(seconds, sum(used.values()) / 1e6)


def learn_by_tokenizers(options: argparse.Namespace) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    from stoker.data.text_pieces import bounded_pieces, own_pre_tokenizer
    from stoker.data.tokenizer import _balanced
    from stoker.recipe import Tokenizer as Settings

    texts = corpus(options.folder)
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = own_pre_tokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        min_frequency=2,
        special_tokens=[Settings().bos_token, Settings().eos_token],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    used = dict.fromkeys(texts, 0)
    balanced = _balanced(texts, int(options.training * 1e6), used)
    pieces = (piece for text in balanced for piece in bounded_pieces(text))
    seconds, _ = timed(lambda: backend.train_from_iterator(pieces, trainer))
    backend.save(str(options.tokenizer))
    report(seconds, sum(used.values()) / 1e6)


MEASURES = {
    "stoker": encode_by_engine,
    "tokenizers": encode_by_tokenizers,
    "tiktoken": encode_by_tiktoken,
    "gigatoken": encode_by_gigatoken,
    "learn stoker": learn_by_engine,
    "learn tokenizers": learn_by_tokenizers,
}


def measured(
    measure: str, tokenizer: Path, options: argparse.Namespace, text: str = "corpus"
) -> dict[str, Any] | None:
    """Run a measurement in a process of its own; None where the peer cannot do it."""
    peer = measure in ("tiktoken", "gigatoken")
    command = [str(options.peers) if peer else sys.executable, __file__, str(options.folder), "--measure", measure]
    command += ["--tokenizer", str(tokenizer), "--measure-text", text]
    command += ["--training", str(options.training), "--endless", str(options.endless)]
    command += ["--every", str(options.every)]
    threads = ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "NUMBA_NUM_THREADS")
    environment = os.environ | dict.fromkeys(threads, "1") | {"TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{measure}: {(done.stderr.strip().splitlines() or ['failed'])[-1][:160]}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def with_pattern(tokenizer: Path, pattern: str) -> Path:
    """The same vocabulary behind another split pattern, as a given tokenizer would have it."""
    written = json.loads(tokenizer.read_text(encoding="utf-8"))
    written["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern
    given = tokenizer.with_name("given.json")
    given.write_text(json.dumps(written), encoding="utf-8")
    return given


def row(name: str, found: dict[str, Any], reference: dict[str, Any], ids: bool = True) -> None:
    speed, other = (one["megabytes"] / one["seconds"] for one in (found, reference))
    same = ("yes" if found["ids"] == reference["ids"] else "no") if ids else ""
    cells = [name, f"{found['megabytes']:.1f}", f"{found['seconds']:.1f}", f"{speed:.1f}", f"{speed / other:.1f}×"]
    print("| " + " | ".join([*cells, f"{found['peak']:,.0f}", same]) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peers", type=Path, help="interpreter with tiktoken and gigatoken")
    parser.add_argument("--training", type=float, default=40.0, help="MB a vocabulary is learnt from")
    parser.add_argument("--every", type=int, default=1, help="encode each so-manieth text alone")
    parser.add_argument("--endless", type=float, default=20.0, help="MB of text without spaces")
    parser.add_argument("--measure", choices=MEASURES, help=argparse.SUPPRESS)
    parser.add_argument("--tokenizer", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--measure-text", default="corpus", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        MEASURES[options.measure](options)
        return
    print("| what | MB | processor s | MB/s | over tokenizers | peak MB | same ids |")
    print("|---|---:|---:|---:|---:|---:|---|")
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder) / "ours.json", Path(folder) / "theirs.json"
        reference = measured("learn tokenizers", theirs, options)
        learnt = measured("learn stoker", ours, options)
        assert reference is not None
        assert learnt is not None
        row("learn 32,000 entries: tokenizers", reference, reference, ids=False)
        row("learn 32,000 entries: stoker", learnt, reference, ids=False)
        models = [json.loads(file.read_text(encoding="utf-8"))["model"] for file in (ours, theirs)]
        same = "the same" if models[0] == models[1] else "not the same"
        print(f"| both vocabularies, and their merges, are {same} | | | | | | |")
        peers = ["tiktoken", "gigatoken"] if options.peers else []
        for what, tokenizer in (("ours", ours), ("Llama 3's pattern", with_pattern(ours, LLAMA_3))):
            reference = measured("tokenizers", tokenizer, options)
            assert reference is not None
            for name in ("tokenizers", "stoker", *peers):
                if found := measured(name, tokenizer, options):
                    row(f"encode, {what}: {name}", found, reference)
        for text in ENDLESS:
            reference = measured("tokenizers", ours, options, text)
            if reference and (found := measured("stoker", ours, options, text)):
                row(f"encode, {text}: tokenizers", reference, reference)
                row(f"encode, {text}: stoker", found, reference)


if __name__ == "__main__":
    main()

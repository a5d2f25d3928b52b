"""A small valid recipe as text, and as a file."""

from __future__ import annotations

from pathlib import Path

SMALL = """\
name: small
data:
  sources:
    - name: english
      paths: [text/english]
      weight: 1
    - name: 中文
      paths: [text/中文]
      weight: 2
model:
  hidden_size: 32
  layers: 2
  heads: 4
  kv_heads: 2
  ffn_hidden_size: 64
training:
  steps: 10
  sequence_length: 16
  global_batch_size: 8
"""


def write(folder: Path, text: str = SMALL, name: str = "recipe.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def write_with_text(folder: Path, text: str = SMALL) -> Path:
    """The recipe with a file of text for each of its sources."""
    for name in ("english", "中文"):
        (folder / "text" / name).mkdir(parents=True, exist_ok=True)
        (folder / "text" / name / "one.txt").write_text("text")
    return write(folder, text)

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

from stoker import __version__
from stoker.record.environment import describe_environment, git_commit


def test_environment_names_machine_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "do-not-record-me")
    described = json.loads(json.dumps(describe_environment("cpu")))
    assert described["stoker"]["version"] == __version__
    assert described["packages"]["torch"] == torch.__version__.split("+")[0] or described["packages"]["torch"]
    assert described["device"]["type"] == "cpu"
    assert described["device"]["name"] == described["processor"]["name"]
    assert described["processor"]["logical_cores"] == os.cpu_count()
    assert described["memory_bytes"] > 2**28
    assert described["threads"] == torch.get_num_threads()
    assert "do-not-record-me" not in json.dumps(described)


def test_commit_says_whether_files_were_changed(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    assert git_commit(tmp_path) is None
    git("init")
    (tmp_path / "package").mkdir()
    (tmp_path / "package/code.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "first")
    commit = git_commit(tmp_path / "package")
    assert commit is not None
    assert len(commit) == 40
    (tmp_path / "package/code.py").write_text("2")
    assert git_commit(tmp_path / "package") == commit + "+changes"


def test_a_package_inside_another_checkout_has_no_commit(tmp_path: Path) -> None:
    subprocess.run(["git", "init", str(tmp_path)], check=True, capture_output=True)
    installed = tmp_path / "venv/stoker"
    installed.mkdir(parents=True)
    (installed / "code.py").write_text("1")
    assert git_commit(installed) is None

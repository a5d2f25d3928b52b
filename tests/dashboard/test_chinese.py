"""The Chinese page says in Chinese what the catalogue says of every cause and every remedy."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from string import Formatter
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stoker.dashboard
import stoker.diagnosis
from stoker.dashboard.chinese import MEANINGS, PHRASES, REMEDIES, WORDS, in_chinese, remedy_in_chinese
from stoker.dashboard.chinese_events import duration_in_chinese, in_a_chinese_line
from stoker.dashboard.doctor import with_words
from stoker.diagnosis import causes, remedies
from stoker.diagnosis.finding import Kind
from stoker.diagnosis.in_a_line import _LINES, in_a_line
from stoker.diagnosis.step_parts import MEASURES as PARTS
from stoker.diagnosis.text_features import WORDS as FEATURES
from stoker.diagnosis.told import _IF_IT_REPEATS

CHINESE = re.compile("[一-鿿]")
PAGE = Path(stoker.dashboard.__file__).parent / "page"


def arguments(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


def test_every_cause_of_the_catalogue_has_its_meaning_in_chinese() -> None:
    assert set(MEANINGS) == {cause.name for cause in causes.CATALOGUE}
    assert all(CHINESE.search(meaning) for meaning in MEANINGS.values())


@pytest.mark.parametrize("action", sorted(remedies.REMEDIES))
def test_every_remedy_has_chinese_words_with_the_same_arguments_and_commands(action: str) -> None:
    english, chinese = remedies.REMEDIES[action], REMEDIES[action]
    assert CHINESE.search(chinese)
    assert arguments(chinese) == arguments(english)
    assert sorted(re.findall(r"`[^`]+`", chinese)) == sorted(re.findall(r"`[^`]+`", english))


def test_no_remedy_is_translated_that_is_gone() -> None:
    assert set(REMEDIES) == set(remedies.REMEDIES)


def test_what_a_remedy_says_in_words_is_in_chinese_too() -> None:
    said = [*_IF_IT_REPEATS.values(), *(measure.removeprefix("seconds of ") for measure in PARTS.values())]
    assert [one for one in said if one not in PHRASES] == []
    told = remedy_in_chinese(remedies.remedy("recovered", how="by itself", then=_IF_IT_REPEATS["killed"]))
    assert told == "无需处理：训练自行恢复后已经继续；若再次出现，查看机器日志：是内存耗尽，还是被谁杀死"


def test_features_of_text_and_parts_of_steps_have_chinese_words() -> None:
    said = [*FEATURES.values(), *PARTS.values(), *(f"{part} of rank 3" for part in PARTS.values())]
    assert [one for one in said if in_chinese(one) is None] == []
    assert in_chinese("seconds of waiting for data of rank 3") == "进程 3 等待数据的秒数"


def written_in(node: ast.expr) -> str | None:
    """A text as it stands in the source, with a figure for what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else "7" for one in node.values)
    return None


def evidence_in(path: Path) -> set[str]:
    """Texts of the evidence that a file of the diagnosis gives: measures, and what was observed in words."""
    found: set[str | None] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        given = [one.value for one in node.keywords if one.arg in ("measure", "expected", "observed")]
        if isinstance(node.func, ast.Name) and node.func.id in ("said", "recorded"):
            given += node.args
        for one in given:
            found |= {
                written_in(part) for part in ([one.body, one.orelse] if isinstance(one, ast.IfExp) else [one])
            }
    return {text for text in found if text}


def test_whatever_evidence_the_diagnosis_gives_has_chinese_words() -> None:
    files = sorted(Path(stoker.diagnosis.__file__).parent.rglob("*.py"))
    said = {text for path in files for text in evidence_in(path)}
    assert len(said) > 40
    filled = {"seconds of 7", "load of the busiest 7", "load of the idlest 7"}  # with what a detector puts in
    names = {"gradient_clip"}  # of recipe fields
    assert [one for one in sorted(said - filled - names) if in_chinese(one) is None] == []


def test_the_seconds_of_every_phase_that_the_page_draws_have_chinese_words() -> None:
    catalogue = (Path(stoker.dashboard.__file__).parent / "page" / "catalogue.js").read_text(encoding="utf-8")
    (order,) = re.findall(r"const ORDER = \[([^\]]+)\]", catalogue)
    phases = re.findall(r'"(\w+)"', order)
    assert {"data", "forward", "backward", "communication", "optimizer"} <= set(phases)
    assert [phase for phase in phases if in_chinese(f"seconds of {phase}") is None] == []


@given(st.text(min_size=1, max_size=30))
def test_a_name_in_a_measure_stays_as_it_is(name: str) -> None:
    assert in_chinese(f"held-out loss of {name}") == f"{name} 的留出集损失"


def test_every_kind_and_cause_has_a_chinese_name_on_the_page() -> None:
    names = (PAGE / "names.js").read_text(encoding="utf-8")
    wanted = {*get_args(Kind), *(cause.name for cause in causes.CATALOGUE)}
    named = {name for name, chinese in re.findall(r'(\w+): \[(?:null|"[^"]*"), "([^"]+)"\]', names)}
    assert wanted - named == set()


def test_every_word_of_the_page_is_there_in_chinese() -> None:
    """A key that only the English table has would be shown in English."""
    words = (PAGE / "words.js").read_text(encoding="utf-8")
    tables = re.findall(r"const (ENGLISH|CHINESE) = \{\n(.*?)\n\};", words, re.DOTALL)
    keys = {name: set(re.findall(r"(?:^|, | {2})(\w+): (?:\"|\(|\[)", table)) for name, table in tables}
    assert len(keys["ENGLISH"]) > 100
    assert keys["ENGLISH"] == keys["CHINESE"]


STAGES = [
    {"stage": 1, "first_step": 1, "shares": {"english": 0.6, "chinese": 0.4}},
    {
        "stage": 2, "first_step": 1200, "shares": {"english": 0.6, "chinese": 0.4},
        "last_shares": {"english": 0.25, "chinese": 0.75},
    },
]  # fmt: skip
_NOTHING_WITHOUT_DETAIL = (
    "saved", "failure", "spike", "divergence", "slow_rank", "alert", "mixture", "mixture_changed",
)  # fmt: skip


@pytest.mark.parametrize("name", sorted(_LINES))
def test_every_event_that_has_english_words_has_chinese_ones(name: str) -> None:
    detail = {
        "message": "m", "steps_again": 3, "origin": "memory", "bytes": 5, "seconds": 0.25, "before": 4,
        "ranks": [2], "measure": "loss", "observed": 9.0, "verdict": "clear", "ratio": 2.0, "retried": True,
        "fault": "kill@5", "reason": "r", "rule": "x", "state": "firing", "severity": "critical", "summary": "s",
        "stages": STAGES, "from_step": 9, "old": {"a": 1.0}, "new": {"b": 1.0},
    }  # fmt: skip
    told = in_a_chinese_line({"event": name, "detail": detail})
    assert told is not None
    if name != "terminated":  # which says what the command itself gave as the reason
        assert CHINESE.search(told)
    without = in_a_chinese_line({"event": name, "detail": None})
    assert without is not None or name in _NOTHING_WITHOUT_DETAIL


def test_the_mixture_of_a_run_is_told_by_its_stages_in_both_languages() -> None:
    event = {"event": "mixture", "detail": {"stages": STAGES}}
    assert in_a_line(event) == (
        "english 60.0%, chinese 40.0%; from step 1,200: english 60.0%, chinese 40.0%, moving to english 25.0%, "
        "chinese 75.0%"
    )
    assert in_a_chinese_line(event) == (
        "english 60.0%, chinese 40.0%；从第 1200 步起：english 60.0%, chinese 40.0%，"
        "逐渐变为 english 25.0%, chinese 75.0%"
    )
    changed = {"event": "mixture_changed", "detail": {"from_step": 9, "old": {"a": 1.0}, "new": {"b": 1.0}}}
    assert in_a_line(changed) == "from step 9: b 100.0%; before: a 100.0%"
    assert in_a_chinese_line(changed) == "从第 9 步起：b 100.0%；此前：a 100.0%"


STOOD_OUT = {
    "measure": "loss",
    "observed": 5.373,
    "expected": 3.594,
    "samples": [11992, 12000],
    "response": "wait",
}


def test_what_the_guard_saw_is_told_with_the_last_sample_of_the_step_and_not_the_next() -> None:
    told = in_a_line({"event": "spike", "detail": STOOD_OUT})
    assert told == "loss 5.373, its recent median 3.594; samples 11,992 to 11,999; response: wait"


def test_what_the_guard_saw_is_told_in_chinese_with_the_samples_of_the_step() -> None:
    told = in_a_chinese_line({"event": "spike", "detail": STOOD_OUT})
    assert told == "损失为 5.373，近期中位数 3.594；样本 11992 至 11999；处理：继续"
    again = {"verdict": "clear", "ranks": [], "losses": [5.373, 5.373]}
    said = in_a_chinese_line({"event": "replayed", "detail": again})
    assert said == "由相同数据重算这一步：结果相同；损失 5.373、5.373"


def test_an_event_without_words_of_its_own_is_left_to_english() -> None:
    assert in_a_chinese_line({"event": "of_a_later_version", "detail": {"a": 1}}) is None


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.0042, "4.2 毫秒"),
        (0.0, "0 毫秒"),
        (4.44, "4.44 秒"),
        (264.0, "4.4 分钟"),
        (9000, "2.5 小时"),
        (172_800, "2 天"),
    ],
)
def test_stretches_of_time_have_chinese_units(seconds: float, told: str) -> None:
    assert duration_in_chinese(seconds) == told


def finding(**changes: Any) -> dict[str, Any]:
    evidence = {"measure": "loss", "expected": 3.0, "observed": 9.0, "step": 7}
    weighed = {
        "cause": "hard_documents",
        "score": 2.0,
        "speaks_for": [{**evidence, "measure": "held-out loss of a<b>"}],
        "speaks_against": [{**evidence, "expected": "the same", "observed": "something new"}],
    }
    return {
        "kind": "spike", "cause": "garbled_text", "evidence": [evidence], "alternatives": [weighed],
        "remedy": {"action": "leave_out_documents", "arguments": {"step": 7}}, **changes,
    }  # fmt: skip


def test_a_finding_is_told_in_both_languages() -> None:
    told = with_words(finding())
    assert told["remedy_words"].startswith("leave these documents out")
    assert told["chinese"]["remedy_words"].startswith("剔除这些文档：`stoker data show RUN --step 7`")
    assert set(told["meanings"]) == set(told["chinese"]["meanings"]) == {"garbled_text", "hard_documents"}
    words = told["chinese"]["words"]
    assert words == {"loss": "损失", "held-out loss of a<b>": "a<b> 的留出集损失", "the same": WORDS["the same"]}


@pytest.mark.parametrize(
    "changes",
    [
        {"cause": "of_a_later_version", "remedy": {"action": "of_a_later_version"}},
        {"remedy": {"action": "roll_back", "arguments": {}}},
        {"remedy": None, "evidence": None, "alternatives": None},
        {"cause": None, "evidence": [{}], "alternatives": [{}]},
    ],
)
def test_what_this_version_does_not_know_is_left_without_words(changes: dict[str, Any]) -> None:
    told = with_words(finding(**changes))
    if "remedy" in changes:
        assert told["remedy_words"] == told["chinese"]["remedy_words"] == ""
    assert all(key in told for key in ("meanings", "chinese"))

"""What happened, in Chinese: each event in one line. Messages that a program gave stay in its own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stoker import wording
from stoker.diagnosis.course import COMMAND_ENDED, RANKS_CHANGED, Event, detail_of
from stoker.diagnosis.in_a_line import reason_of, shares_in_words, stages_of

_UNITS = ((86_400.0, "天"), (3600.0, "小时"), (60.0, "分钟"), (1.0, "秒"))


def in_a_chinese_line(event: Event) -> str | None:
    """As `stoker.diagnosis.in_a_line`; None where the English line says what it has to say."""
    tell = _LINES.get(str(event.get("event")))
    return (tell(detail_of(event)) or None) if tell is not None else None


def duration_in_chinese(seconds: float) -> str:
    """A stretch of time in one unit."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{float(f'{seconds / size:.3g}'):g} {unit}"
    return f"{float(f'{1e3 * seconds:.3g}'):g} 毫秒"


def _resumed(detail: dict[str, Any]) -> str:
    origins = {
        "checkpoint": "从这一步的检查点或其在内存中的副本继续",
        "memory": "从内存中的副本继续（没有这一步的检查点记录）",
    }
    again = detail.get("steps_again")
    lost = "" if again is None else "；没有丢失任何一步" if not again else f"；须重做 {again} 步"
    return origins.get(str(detail.get("origin")), "从已保存的状态继续") + lost


def _saved(detail: dict[str, Any]) -> str:
    size, seconds = detail.get("bytes"), detail.get("seconds")
    parts = [f"仅进程 0 就有 {wording.size(size)}"] if isinstance(size, int | float) else []
    parts += [f"用时 {duration_in_chinese(seconds)}"] if isinstance(seconds, int | float) else []
    return "，".join(parts)


def _failure(detail: dict[str, Any]) -> str:
    ranks, said, after = detail.get("ranks"), reason_of(detail), ""
    if "retried" in detail:
        after = "；各进程重新启动" if detail["retried"] else "；训练结束"
    known = isinstance(ranks, list) and ranks and "rank" not in said
    return said + (f"；责任在进程 {'、'.join(map(str, ranks))}" if known and ranks else "") + after


def _gave_up(detail: dict[str, Any]) -> str:
    said = str(detail.get("message") or detail.get("kind") or "").rstrip(".")
    return "；".join(part for part in (said, str(detail.get("reason") or ""), "训练结束") if part)


def _resized(detail: dict[str, Any]) -> str:
    nodes = detail.get("nodes")
    on = f"；所在节点：{'、'.join(map(str, nodes))}" if isinstance(nodes, list) and nodes else ""
    if detail.get("layout_before") and detail.get("layout"):
        return f"布局改变：原为 {detail['layout_before']}，现为 {detail['layout']}{on}"
    layout = f"（{detail['layout']}）" if detail.get("layout") else ""
    return f"布局改变：原为{_ranks(detail.get('before'))}，现为{_ranks(detail.get('ranks'))}{layout}{on}"


def _ranks(number: Any) -> str:
    return f" {int(number)} 个进程" if isinstance(number, int | float) else "另一进程数"


_MEASURES = {"loss": "损失", "gradient norm": "梯度范数", "update norm": "更新量范数"}
_RESPONSES = {"wait": "继续", "skip_step": "略去这一步", "rollback": "回退", "ask": "停止并询问"}
_VERDICTS = {"clear": "结果相同", "transient": "结果不同，第二次不再出现"}


def _stood_out(detail: dict[str, Any]) -> str:
    measure = _MEASURES.get(str(detail.get("measure")), str(detail.get("measure")))
    said = f"{measure}为 {_figure(detail.get('observed'))}，近期中位数 {_figure(detail.get('expected'))}"
    bounds = detail.get("samples")
    samples = f"；样本 {bounds[0]} 至 {bounds[1] - 1}" if isinstance(bounds, list) and len(bounds) == 2 else ""
    response = str(detail.get("response"))
    return f"{said}{samples}；处理：{_RESPONSES.get(response, response)}" if "observed" in detail else ""


def _replayed(detail: dict[str, Any]) -> str:
    verdict, ranks = str(detail.get("verdict")), detail.get("ranks")
    named = f"；结果不同的进程：{'、'.join(map(str, ranks))}" if isinstance(ranks, list) and ranks else ""
    losses = detail.get("losses")
    both = f"；损失 {'、'.join(map(_figure, losses))}" if isinstance(losses, list) else ""
    return f"由相同数据重算这一步：{_VERDICTS.get(verdict, verdict)}{named}{both}"


def _slow(detail: dict[str, Any]) -> str:
    ranks, ratio = detail.get("ranks"), detail.get("ratio")
    if not isinstance(ranks, list) or not isinstance(ratio, int | float):
        return ""
    return f"进程 {'、'.join(map(str, ranks))} 单独计时为其他进程的 {_figure(ratio)} 倍"


def _mixture(detail: dict[str, Any]) -> str:
    return "；".join(
        f"{f'从第 {first} 步起：' if number else ''}{shares_in_words(shares)}"
        + (f"，逐渐变为 {shares_in_words(last)}" if last != shares else "")
        for number, (first, shares, last) in enumerate(stages_of(detail))
    )


def _mixture_changed(detail: dict[str, Any]) -> str:
    step, old, new = detail.get("from_step"), detail.get("old"), detail.get("new")
    if not isinstance(step, int) or not isinstance(old, dict) or not isinstance(new, dict):
        return ""
    return f"从第 {step} 步起：{shares_in_words(new)}；此前：{shares_in_words(old)}"


def _figure(value: Any) -> str:
    return wording.figure(value) if isinstance(value, float) else str(value)


def _alert(detail: dict[str, Any]) -> str:
    if not {"rule", "state", "summary"} <= set(detail):
        return ""
    state = {"firing": "触发", "resolved": "解除"}.get(str(detail.get("state")), "")
    severity = {"critical": "严重", "warning": "警告"}.get(str(detail.get("severity")), "")
    return f"{detail.get('rule')} {state}（{severity}）：{detail.get('summary')}"


_LINES: dict[str, Callable[[dict[str, Any]], str]] = {
    "started": lambda detail: "从头开始",
    "resumed": _resumed,
    "saved": _saved,
    "finished": lambda detail: "最后一步已完成",
    "terminated": lambda detail: reason_of(detail) or "被要求停止；已在这一步之后保存",
    "failure": _failure,
    "gave_up": _gave_up,
    "supervisor_died": lambda detail: f"监管进程及其各进程终止（{reason_of(detail)}），已另行启动",
    "ranks_ended": lambda detail: "各进程都已结束，将以另一种方式启动",
    "shrunk": _resized,
    "grown": _resized,
    "fault": lambda detail: f"由演练放入：{detail.get('fault')}",
    "alert": _alert,
    "spike": _stood_out,
    "divergence": _stood_out,
    "replayed": _replayed,
    "slow_rank": _slow,
    "mixture": _mixture,
    "mixture_changed": _mixture_changed,
    COMMAND_ENDED: lambda detail: "整条命令终止而未能留下记录：它被杀死，或所在机器停机",
    RANKS_CHANGED: _resized,
}

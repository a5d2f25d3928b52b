"""A picture of a pipeline: what each of its ranks does when, in one step."""

from __future__ import annotations

from html import escape

from stoker.errors import BadInput
from stoker.pipeline_schedule import Kind, StageSeconds, build_schedule, simulate
from stoker.planning.search.searching import Candidate

_WIDTH, _ROW, _LEFT, _TOP = 1200, 22, 70, 46
_MOST_MICRO_BATCHES_FOR_EACH_RANK = 3
_COLOURS = {
    Kind.FORWARD: "#4c78a8",
    Kind.BACKWARD: "#f2a541",
    Kind.BACKWARD_INPUT: "#e45756",
    Kind.BACKWARD_WEIGHT: "#7fb58c",
}
_WORDS = {
    Kind.FORWARD: "forward",
    Kind.BACKWARD: "backward",
    Kind.BACKWARD_INPUT: "gradient of the input",
    Kind.BACKWARD_WEIGHT: "gradient of the weights",
}


def draw_timeline(candidate: Candidate) -> str:
    """An SVG of the schedule played with the predicted seconds, of at most three micro-batches for each rank.

    Raises `BadInput` when the layout has no pipeline.
    """
    layout, seconds = candidate.layout, candidate.prediction.seconds
    if layout.pp == 1:
        raise BadInput("this layout has no pipeline to draw (pp=1)")
    each = layout.stages // layout.pp
    whole = candidate.prediction.workload.micro_batches
    count = min(whole, _MOST_MICRO_BATCHES_FOR_EACH_RANK * layout.pp)
    schedule = build_schedule(layout.pipeline_schedule, layout.pp, count, each)
    again = seconds.recompute
    work = (
        (seconds.total - seconds.pp_bubble - seconds.optimizer - seconds.dp - seconds.data - again) / whole / each
    )
    forward, backward = work / 3, work * 2 / 3 + again / whole / each
    cost = StageSeconds(forward, backward, backward / 2, backward / 2)
    timeline = simulate(schedule, [cost] * schedule.stages)
    scale = (_WIDTH - _LEFT - 10) / timeline.makespan
    height = _TOP + _ROW * layout.pp + 30
    drawn = f"{whole:,} micro-batches" if count == whole else f"the first {count} of {whole:,} micro-batches alone"
    title = f"{layout}: {drawn}, bubble {timeline.bubble_fraction:.0%}"
    if each > 1:
        title += "; a rank's later stages are paler"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="8" y="18" font-size="14">{escape(title)}</text>',
    ]
    used = {action.kind for actions in schedule.actions for action in actions}
    for place, kind in enumerate(sorted(used)):
        left = _LEFT + 190 * place
        parts.append(f'<rect x="{left}" y="27" width="12" height="12" fill="{_COLOURS[kind]}"/>')
        parts.append(f'<text x="{left + 17}" y="38" font-size="12">{_WORDS[kind]}</text>')
    for rank, actions in enumerate(schedule.actions):
        y = _TOP + _ROW * rank
        parts.append(f'<text x="8" y="{y + 15}" font-size="12">rank {rank}</text>')
        for action, start, ended in zip(actions, timeline.start[rank], timeline.end[rank], strict=True):
            x, width = _LEFT + start * scale, (ended - start) * scale
            told = f"{_WORDS[action.kind]}, stage {action.stage}, micro-batch {action.micro_batch}"
            parts.append(
                f'<rect x="{x:.2f}" y="{y + 2}" width="{max(width - 0.5, 0.3):.2f}" height="{_ROW - 4}" '
                f'fill="{_COLOURS[action.kind]}" opacity="{1 - 0.35 * (action.stage // layout.pp) / each:.2f}">'
                f"<title>{told}</title></rect>"
            )
            if width > 14:
                parts.append(
                    f'<text x="{x + width / 2:.1f}" y="{y + 15}" font-size="10" text-anchor="middle" '
                    f'fill="white">{action.micro_batch}</text>'
                )
    below = _TOP + _ROW * layout.pp + 18
    parts.append(f'<text x="{_LEFT}" y="{below}" font-size="12">0</text>')
    parts.append(
        f'<text x="{_WIDTH - 10}" y="{below}" font-size="12" text-anchor="end">{timeline.makespan:.3g} s</text>'
    )
    return "\n".join([*parts, "</svg>"]) + "\n"

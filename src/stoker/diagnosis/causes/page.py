"""The catalogue as a page: `docs/diagnosis.md`."""

from __future__ import annotations

from collections.abc import Iterator

from stoker.diagnosis.causes import CATALOGUE
from stoker.diagnosis.causes.cause import Cause
from stoker.diagnosis.remedies import REMEDIES

BEGIN, END = "<!-- examination: begin -->", "<!-- examination: end -->"
"""Around what the examination writes."""
_GROUPS = {"data": "The data", "machine": "The machine", "recipe": "The recipe and the framework"}

_HEAD = """# What `stoker diagnose` can name

Made from the catalogue in `src/stoker/diagnosis/causes/`:
`python -m stoker.diagnosis.causes docs/diagnosis.md > page && mv page docs/diagnosis.md`.
How it is used is in [diagnose.md](diagnose.md).

## How a cause is named

1. Detectors look at the run's curves and find what stands out from the run's own past; what they find at the
   same time is one incident.
2. Every cause that can explain such an incident is asked for its signs. Each sign is an observed figure beside
   the one that was expected, and a score in nats: how much likelier the figure is under the cause than by the
   run's own noise. A deviation of `z` robust deviations counts `2 log(1 + z²/3) - 1.5`, which is the
   log-likelihood ratio of Student's t with three degrees of freedom less the freedom to change by any amount;
   what the record says outright counts 10; no sign counts more than 12. Signs against a cause are negative.
   What begins after the loss has moved counts a third.
3. The cause with the largest sum is named if it reaches 3 nats, else the cause is `unknown`. `hard_documents`,
   under which nothing is wrong, is weighed like the others. The next three are kept in the finding, with what
   speaks for and against them.

Text is looked at where the run's corpus is at hand: the documents of the incident's first steps with the worst
loss (where these were recorded, else all) are held against a sample of documents of the same source in other
steps.
"""

_ADDING = """## How a cause is added

1. Where it has an incident of its own that no detector finds, write one: a function of arrays in a file of its
   own in `src/stoker/diagnosis/`, whose limits come from the run's own past; call it in `diagnose.py`, and put
   its kind into a family in `incidents.py` if other kinds can show the same incident.
2. Write a function of an `Incident` that yields `Sign`s, and a `Cause` beside it, in `causes/data.py`,
   `machine.py` or `recipe.py`. `incident.departure(curve)` compares the onset with its past, `of_members` takes
   a detector's evidence, `of_text` a feature of the documents. Yield what speaks against it too.
3. If what it takes to mend it is new, add a sentence to `remedies.py`.
4. Draw runs with it in `tests/diagnosis/planted_causes.py`, and make this page anew; tests hold both.
"""


def page(before: str = "") -> str:
    """The whole page; `before` is the page as it is, of which the examination's part is kept."""
    kept = before.partition(BEGIN)[2].partition(END)[0] if BEGIN in before and END in before else "\n"
    parts = [_HEAD]
    for group, title in _GROUPS.items():
        parts.append(f"## {title}\n")
        parts += ["\n".join(_section(cause)) for cause in CATALOGUE if cause.group == group]
    parts.append(f"## How well it does\n\n{BEGIN}{kept}{END}\n")
    parts.append(_ADDING)
    return "\n".join(parts)


def _section(cause: Cause) -> Iterator[str]:
    todo = "as the finding says" if cause.remedy is None else REMEDIES[cause.remedy]
    kinds = ", ".join(f"`{kind}`" for kind in dict.fromkeys(cause.kinds))
    yield f"### `{cause.name}`"
    yield ""
    yield f"{cause.signature}"
    yield ""
    yield f"- Explains: {kinds}"
    yield f"- What to do: {todo}"
    yield f"- False friends: {cause.false_friends}"
    yield f"- Source: {cause.source}"
    yield ""

"""The web application: what the page asks for, and how it is answered. Nothing is written anywhere."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import numpy.ma  # noqa: F401 - the first median would load it, while somebody waits for a page
import polars as pl
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import stoker
from stoker.dashboard.doctor import counts_of
from stoker.dashboard.finding_runs import runs_at
from stoker.dashboard.heat import heat_of_modules, heat_of_ranks
from stoker.dashboard.lines import MOST_PIXELS, Window, drawn
from stoker.dashboard.live import Newsroom
from stoker.dashboard.moment import documents_of, moment_of, step_near, timeline_of
from stoker.dashboard.page_files import page_files
from stoker.dashboard.summary import comparison_of, events_of, funnel_of, page_of, summary_of
from stoker.dashboard.watched import UNITS, WatchedRun
from stoker.errors import BadInput, StokerError


class Watching:
    """The runs that are watched; of folders of runs, those that are begun later too."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = list(paths)
        self._runs: dict[str, WatchedRun] = {}
        self.look()

    def look(self) -> list[WatchedRun]:
        """The runs there are now, in the order of the command line. Raises `BadInput` when there never was one."""
        try:
            found = [WatchedRun(directory) for directory in runs_at(self.paths)]
        except BadInput:
            if not self._runs:
                raise
            found = []
        for run in found:
            self._runs.setdefault(run.id, run)
        return list(self._runs.values())

    @property
    def runs(self) -> list[WatchedRun]:
        """The runs that are known."""
        return list(self._runs.values())

    def run(self, identifier: str) -> WatchedRun:
        """One run. Ends the request when there is none."""
        if identifier not in self._runs:
            raise HTTPException(404, "there is no such run")
        return self._runs[identifier]


def application_for(watching: Watching) -> Starlette:
    """The application without its guard; see `guard.Guard`."""
    newsroom = Newsroom()
    answers = _Answers(watching, newsroom)

    @asynccontextmanager
    async def lifespan(application: Starlette) -> AsyncIterator[None]:
        begun = asyncio.create_task(run_in_threadpool(answers.read_ahead))
        yield
        await newsroom.close()
        await begun

    application = Starlette(
        routes=answers.routes(),
        lifespan=lifespan,
        exception_handlers={StokerError: _refused, HTTPException: _absent},
        middleware=[Middleware(GZipMiddleware, minimum_size=1024, compresslevel=4)],
    )
    application.state.newsroom = newsroom
    return application


async def _refused(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 400 if isinstance(error, BadInput) else 500)


async def _absent(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)


class _Answers:
    """One method for each thing that can be asked."""

    def __init__(self, watching: Watching, newsroom: Newsroom) -> None:
        self.watching = watching
        self.newsroom = newsroom
        self.files = page_files()

    def routes(self) -> list[Route]:
        """All addresses."""
        one = "/api/run/{run}"
        return [
            Route("/", self.files.answer),
            Route("/file/{version}/{name}", self.files.answer),
            Route("/api/runs", self.runs),
            Route("/api/live", self.live),
            Route("/api/compare", self.compare),
            Route(one, self.page),
            Route(one + "/lines", self.lines),
            Route(one + "/heat", self.heat),
            Route(one + "/events", self.events),
            Route(one + "/findings", self.findings),
            Route(one + "/funnel", self.funnel),
            Route(one + "/near", self.near),
            Route(one + "/moment", self.moment),
            Route(one + "/documents", self.documents),
            Route(one + "/timeline", self.timeline),
        ]

    def read_ahead(self) -> None:
        """What the list says of each run, while the browser is still being opened."""
        for run in self.watching.runs:
            if self.newsroom.closing.is_set():
                return
            # Whoever asks for a run that cannot be read is told why.
            with suppress(OSError, ValueError, StokerError, pl.exceptions.PolarsError):
                run.refresh()
                summary_of(run)

    async def runs(self, request: Request) -> Response:
        """Every run in a line."""
        rows = await run_in_threadpool(self._lines)
        for run in self.watching.runs:
            self.newsroom.doctor.ask(run)
        return JSONResponse({"runs": rows, "version": stoker.__version__})

    def _lines(self) -> list[dict[str, Any]]:
        rows = []
        for run in self.watching.look():
            run.refresh()
            opinion = self.newsroom.doctor.of(run)
            rows.append(
                {**summary_of(run), "findings": counts_of(opinion["findings"]), "diagnosis": opinion["state"]}
            )
        return rows

    def live(self, request: Request) -> Response:
        """What changes, as server-sent events."""
        runs = [self.watching.run(name) for name in request.query_params.getlist("run")][:256]
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self.newsroom.listen(runs), media_type="text/event-stream", headers=headers)

    def page(self, request: Request) -> Response:
        """What a run's page begins with."""
        run = self._run(request)
        run.refresh()
        return JSONResponse(page_of(run))

    def lines(self, request: Request) -> Response:
        """Curves, as binary columns."""
        run, window = self._run(request), _window(request)
        return _tagged(request, run, lambda: drawn(run, request.query_params.getlist("line"), window), window)

    def heat(self, request: Request) -> Response:
        """A heat map, as binary columns."""
        run, window, measure = self._run(request), _window(request), request.query_params.get("measure", "")
        make = heat_of_modules if request.query_params.get("of") == "modules" else heat_of_ranks
        return _tagged(request, run, lambda: make(run, measure, window), window)

    def events(self, request: Request) -> Response:
        """What happened."""
        return JSONResponse(events_of(self._run(request)))

    async def findings(self, request: Request) -> Response:
        """What stands out, as far as it has been asked."""
        run = self._run(request)
        self.newsroom.doctor.ask(run)
        return JSONResponse(self.newsroom.doctor.of(run))

    def funnel(self, request: Request) -> Response:
        """What became of the documents that were read."""
        return JSONResponse({"rows": funnel_of(self._run(request))})

    def near(self, request: Request) -> Response:
        """The step that a click means."""
        run, unit = self._run(request), _unit(request)
        at, reach = _number(request, "at"), _number(request, "reach")
        if at is None or reach is None:
            raise BadInput("`at` and `reach` say which place is meant; one of them is missing")
        line = request.query_params.get("line", "step:0:loss")
        return JSONResponse({"step": step_near(run, unit, at, abs(reach), line)})

    def moment(self, request: Request) -> Response:
        """One step from all sides."""
        return JSONResponse(moment_of(self._run(request), _step(request)))

    def documents(self, request: Request) -> Response:
        """The text of one step."""
        return JSONResponse(documents_of(self._run(request), _step(request)))

    def timeline(self, request: Request) -> Response:
        """One step on all ranks."""
        return JSONResponse(timeline_of(self._run(request), _step(request)))

    def compare(self, request: Request) -> Response:
        """What is not the same in two runs."""
        runs = [self.watching.run(name) for name in request.query_params.getlist("run")]
        if len(runs) != 2:
            raise BadInput(f"two runs are compared, not {len(runs)}")
        return JSONResponse(comparison_of(*runs))

    def _run(self, request: Request) -> WatchedRun:
        return self.watching.run(request.path_params["run"])


def _tagged(request: Request, run: WatchedRun, make: Callable[[], bytes], window: Window) -> Response:
    """An answer that the browser keeps for as long as nothing has changed in the window.

    Rows before the newest never change unless the run goes back: a window that ends before them keeps its tag.
    """
    history, axis = run.history(), run.axis(window.unit)
    closed = axis is not None and axis.size and window.end is not None and window.end < axis[-1]
    state = ("closed", history.redone, axis[0] if axis is not None else 0) if closed else run.version
    known = (run.id, str(request.url.query), request.url.path, state, history.steps.size if not closed else 0)
    tag = f'W/"{hashlib.sha256(repr(known).encode()).hexdigest()[:24]}"'
    headers = {"etag": tag, "cache-control": "private, no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(make(), media_type="application/octet-stream", headers=headers)


def _window(request: Request) -> Window:
    pixels = request.query_params.get("pixels", "1000")
    if not pixels.isdecimal() or len(pixels) > 9 or not 1 <= int(pixels) <= MOST_PIXELS:
        raise BadInput(f"pixels: expected a whole number from 1 to {MOST_PIXELS}, got {pixels[:20]!r}")
    return Window(_unit(request), _number(request, "begin"), _number(request, "end"), int(pixels))


def _unit(request: Request) -> str:
    unit = request.query_params.get("unit", "step")
    if unit not in UNITS:
        raise BadInput(f"unit: expected one of {', '.join(UNITS)}, got {unit[:20]!r}")
    return unit


def _number(request: Request, name: str) -> float | None:
    given = request.query_params.get(name)
    if given is None or not given:
        return None
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInput(f"{name}: expected a number, got {given[:20]!r}")
    return value


def _step(request: Request) -> int:
    value = _number(request, "step")
    if value is None or not 0 <= value < 2**53:
        raise BadInput(f"step: expected a step, got {str(value)[:20]}")
    return int(value)

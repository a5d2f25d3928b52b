"""The application all verbs belong to, and how it ends: exit codes, messages, never a traceback unasked."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from stoker import __version__
from stoker.cli.address_space import address_space
from stoker.cli.empty_paths import refuse_empty_paths
from stoker.cli.terminal_text import lines_printable
from stoker.console import print_error, print_result
from stoker.durable_files import disk_error
from stoker.errors import EXIT_FAILED, EXIT_TERMINATED, BadInput, StokerError, Terminated
from stoker.wording import size

_DEBUG_VARIABLE = "STOKER_DEBUG"
_PANIC = "PanicException"
"""What libraries written in Rust raise in the end, and no `Exception`."""


class _Verbs(TyperGroup):
    """Ends with this program's exit code on Ctrl-C, where typer has its own; refuses empty paths everywhere."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        refuse_empty_paths(self, args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Terminated("stopped by Ctrl-C") from None
        except EOFError as error:  # typer would say "Aborted." and nothing else
            raise RuntimeError(f"EOFError: {error}") from error


application = typer.Typer(
    name="stoker",
    cls=_Verbs,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Pretrain language models: prepare text, plan, train, evaluate, report.\n\n"
    "Start with `stoker run examples/quickstart/recipe.yaml`, or write a recipe of your own "
    "with `stoker recipe new`.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print_result(f"stoker {__version__}")
        raise typer.Exit


@application.callback()
def _options(
    debug: Annotated[
        bool, typer.Option("--debug", help=f"Show tracebacks; the same as {_DEBUG_VARIABLE}=1.", show_default=False)
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    if debug:
        os.environ[_DEBUG_VARIABLE] = "1"


def main() -> NoReturn:
    """Run the command line and exit: see `stoker.errors` for the codes."""
    _end_politely_on_sigterm()
    try:
        _require_current_folder()
        application()
    except StokerError as error:
        if _debugging():
            traceback.print_exc()
        _say(f"{error}. {_how_to_go_on()}" if isinstance(error, Terminated) else str(error))
        sys.exit(error.exit_code)
    except BrokenPipeError:
        _close_stdout_quietly()
        sys.exit(EXIT_FAILED)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        if _debugging():
            traceback.print_exc()
        explained = disk_error(error, error.filename) if isinstance(error, OSError) else None
        _say(_unexpected(error) if explained is None else str(explained))
        sys.exit(EXIT_FAILED)
    sys.exit(0)


def _say(message: str) -> None:
    """An error names files and quotes text, which may be anybody's."""
    print_error(lines_printable(message))


def _how_to_go_on() -> str:
    if "WORLD_SIZE" in os.environ:  # one rank of several, which a launcher started
        return "The same command goes on from there."
    return f"The same command goes on from there: {shlex.join(['stoker', *sys.argv[1:]])}"


def _require_current_folder() -> None:
    """Libraries find their own files by way of it, and fail in ways that nobody understands."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise BadInput("the current folder was deleted; change to another (cd) and run the command again") from None


def _debugging() -> bool:
    return os.environ.get(_DEBUG_VARIABLE, "0") not in ("", "0")


def _unexpected(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    more = "" if _debugging() else f" Run it again with {_DEBUG_VARIABLE}=1 to see where it comes from."
    words = str(error).strip().split("\n")[0]
    if (limit := address_space()) is not None:
        # What does not fit is told in a hundred ways: libraries that are said to be missing, threads, panics.
        return (
            f"{type(error).__name__}{where}{': ' + words if words else ''}. This process may have no more than "
            f"{size(limit)} of address space (`ulimit -v`), which is the likely cause: raise it, or set no limit."
            f"{more}"
        )
    if isinstance(error, MemoryError) or "can't allocate memory" in words or "out of memory" in words:
        return (
            f"this machine's memory does not suffice{where} ({words or 'no memory left'}). A smaller model, "
            "training.micro_batch_size or training.sequence_length needs less."
        )
    return f"an unexpected error{where}: {type(error).__name__}{': ' + words if words else ''}.{more}"


def _end_politely_on_sigterm() -> None:
    """SIGTERM unwinds this process (so that files beside are removed); a forked worker just ends."""
    owner = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            os._exit(EXIT_TERMINATED)
        raise Terminated("ended by SIGTERM")

    signal.signal(signal.SIGTERM, end)


def _close_stdout_quietly() -> None:
    """The reader of our output is gone: say nothing more, not even when Python flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

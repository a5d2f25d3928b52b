"""The screen of `stoker watch --terminal`."""

from __future__ import annotations

from rich.text import Text
from textual.app import App, ComposeResult
from textual.widgets import Footer, Static

from stoker.dashboard.terminal import Watcher, screen_text
from stoker.dashboard.watched import WatchedRun

_REDRAW_SECONDS = 0.5
_STYLES = {"ALARM": "bold red", "WARNING": "bold yellow"}


class Screen(App[None]):
    """One run: loss, speed, phases, memory, findings, the last events."""

    CSS = "Static { height: 1fr; padding: 0 1; }"
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, watcher: Watcher) -> None:
        super().__init__()
        self._watcher = watcher
        self.bind("q", "quit", description="Quit")

    def compose(self) -> ComposeResult:
        """The text and the keys."""
        yield Static(id="run")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to read and to draw."""
        self._watcher.start()
        self.set_interval(_REDRAW_SECONDS, self._draw)

    def on_unmount(self) -> None:
        """Read no more."""
        self._watcher.close()

    def _draw(self) -> None:
        snapshot = self._watcher.snapshot
        if snapshot is None:
            return
        text = screen_text(snapshot, self._watcher.findings, self.size.width - 2, self.size.height - 1)
        shown = Text(text, no_wrap=True, overflow="crop")  # plain text: names in a record are no markup
        for word, style in _STYLES.items():
            shown.highlight_regex(rf"(?m)^{word}", style)
        self.query_one("#run", Static).update(shown)


def screen_for(run: WatchedRun) -> Screen:
    """The screen of a run."""
    return Screen(Watcher(run))

"""The report: one self-contained page about a run, or about several side by side."""

from __future__ import annotations

from stoker.report.page import write_report

__all__ = ["write_report"]

"""Stoker pretrains language models: prepare, plan, train, record, diagnose, recover."""

__version__ = "0.1.0"

"""Where the time of a step goes: torch's profiler on all ranks, one trace, a table, and the questions to ask of it.

recording   one rank: ranges of our own around its steps, the profiler for some of them
trace       what the profiler wrote, read
account     each nanosecond of a step in one category
analysis    all ranks together
checklist   data, computation, communication in turn, answered with figures
"""

from stoker.profiling.profile import Profile, Request, profile

__all__ = ["Profile", "Request", "profile"]

"""Text that models wrote: asking for it, choosing among it, and measuring what it lacks beside real text."""

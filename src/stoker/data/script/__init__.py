"""Chinese scripts: folding to one form for comparison, detection, and conversion of text."""

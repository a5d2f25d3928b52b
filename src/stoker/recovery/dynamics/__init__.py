"""Faults that break nothing: the run goes on, and its curves tell, if somebody reads them.

Each is done as it happens in life, to the data, the update, the weights or the machine; the record tells truly what
came of it. One small file a group; `course.py` puts them into a rank.
"""

"""Files of many formats to documents, in bounded memory, whatever state the files are in.

`files.py` finds the files of a source, `units.py` cuts them into pieces of work, `read.py` turns a
piece into documents and faults. Below them is one file for each format.
"""

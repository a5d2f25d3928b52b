"""Compiled byte-level BPE: splitting text, counting words, learning merges and applying them.

split_pattern   a tokenizer's regular expression, read as data
characters      which sets of the pattern each code point belongs to
splitting       the compiled matcher of patterns
words           a compiled table of the words (pre-tokens) seen
merging         the compiled merges of one word
engine          text to ids, with all of these
recognition     whether a `tokenizer.json` can be encoded by the engine, proved by comparison
learning        merges learnt from counted words
"""

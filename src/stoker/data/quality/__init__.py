"""How good a text is: likeness to text that somebody chose, and how surprising it is to a model of characters."""

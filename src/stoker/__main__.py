"""`python -m stoker` is `stoker`."""

from stoker.cli import main

if __name__ == "__main__":
    main()

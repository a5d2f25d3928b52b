"""`python -m stoker` and the command `stoker`: nothing is imported before Ctrl-C is understood."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from stoker.cli import main as run
    except KeyboardInterrupt:
        sys.exit(143)
    run()


if __name__ == "__main__":
    main()

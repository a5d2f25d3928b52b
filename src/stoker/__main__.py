"""`python -m stoker` and the command `stoker`: little is imported before Ctrl-C is understood."""

import atexit
import gc
import sys


def main() -> None:
    """Run the command line."""
    # On its way out Python would look three times for garbage among all that was loaded, half a second after torch.
    atexit.register(gc.freeze)
    try:
        from stoker.standard_streams import make_streams_safe, speak_utf8

        speak_utf8()
        make_streams_safe()
        from stoker.cli import main as run
    except KeyboardInterrupt:
        sys.exit(143)
    run()


if __name__ == "__main__":
    main()

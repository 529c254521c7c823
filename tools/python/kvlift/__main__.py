"""The program `kvlift`, in the process of Python: also `python -m kvlift`."""

import os
import sys

# As a script, which is how the program runs itself again, this file's folder is first on the path.
if not __package__:
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main() -> int:
    """Runs the command line of this process; returns the exit code."""
    import kvlift

    again = [sys.executable, os.path.abspath(__file__)]
    words = [os.fsencode(word) for word in ("kvlift", *sys.argv[1:])]
    try:
        return kvlift._native.program(words, [os.fsencode(word) for word in again])
    except kvlift.Error as error:
        print(f"kvlift: {error}", file=sys.stderr)
        return 70


if __name__ == "__main__":
    sys.exit(main())

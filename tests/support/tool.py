"""Calls the program. Environment: KVLIFT, its path."""
import os
import subprocess


def tool(*args):
    return subprocess.run([os.environ["KVLIFT"], *map(str, args)], capture_output=True, text=True,
                          timeout=300)


def done(*args):
    """Returns what the program prints; AssertionError if it fails."""
    run = tool(*args)
    if run.returncode != 0:
        raise AssertionError(run.stdout + run.stderr)
    return run.stdout

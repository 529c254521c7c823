"""Calls the program. Environment: KVLIFT, its path."""
import os
import pathlib
import subprocess
import tempfile
import unittest


def tool(*args):
    return subprocess.run([os.environ["KVLIFT"], *map(str, args)], capture_output=True, text=True,
                          timeout=300)


def done(*args):
    """Returns what the program prints; AssertionError if it fails."""
    run = tool(*args)
    if run.returncode != 0:
        raise AssertionError(run.stdout + run.stderr)
    return run.stdout


class FolderTest(unittest.TestCase):
    """A test with an empty folder of its own, `self.dir`, which is removed behind it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

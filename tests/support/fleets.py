"""Runs of `fleet` and its processes, for the tests of many models.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from support import schemas

ROOT = pathlib.Path(os.environ["KVLIFT_ROOT"])
KVLIFT = os.environ["KVLIFT"]
MODELS = ROOT / "testdata" / "models"
GOOD = MODELS / "llama_optimum" / "model.onnx"
REFUSED = MODELS / "neg_concat_reversed_ts" / "model.onnx"
MEASURED = ("seconds", "peak_memory_bytes")


def fleet(*args, **options):
    return subprocess.run([KVLIFT, "fleet", *map(str, args)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=600, check=False, **options)


def results(out):
    """The lines of results.jsonl, each of which must be a whole document."""
    text = (out / "results.jsonl").read_text(encoding="ascii")
    return [schemas.check_json(line) for line in text.splitlines()]


def steady(lines):
    """Results without what is measured anew in each run, and without the sizes of their files:
    documents and pages name the folder."""
    return [{key: [file["path"] for file in value] if key == "files" else value
             for key, value in line.items() if key not in MEASURED} for line in lines]


def children(pid):
    """Processes that a process has started, with their arguments."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) == pid and fields[0] not in "ZX":
                words = (stat.parent / "cmdline").read_bytes().split(b"\0")
                yield int(stat.parent.name), [word.decode() for word in words]
        except (FileNotFoundError, ProcessLookupError):
            continue


def wait_for(found, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        time.sleep(0.002)
    raise AssertionError("waited in vain")


def hold(process, wanted=""):
    """Stops a child of a run that works on such a model; gives its id."""
    def stopped():
        for pid, words in children(process.pid):
            if "--json" not in words or wanted not in words[2]:
                continue
            try:
                os.kill(pid, signal.SIGSTOP)
                state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state not in "ZX":
                return pid
        return None
    return wait_for(stopped)


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.dir)
        self.out = self.dir / "out"

    def run_fleet(self, code, *args, **options):
        done = fleet(*args, **options)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def start(self, *args):
        process = subprocess.Popen([KVLIFT, "fleet", *map(str, args)], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def list_of(self, *lines, name="list.txt"):
        path = self.dir / name
        path.write_text("\n".join(map(str, lines)) + "\n", encoding="utf-8")
        return path

    def nothing_unfinished(self):
        left = [path for path in self.out.rglob("*")
                if ".tmp-" in path.name or path.suffix == ".part"]
        self.assertEqual(left, [])

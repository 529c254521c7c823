"""Random decoders, converted, with one random semantic edit each: `kvlift verify` says "different"
of every edit that ONNX Runtime shows to differ.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository; KVLIFT_EDITS, how many (500 for all that
is claimed; fewer by default).
"""

import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import unittest

import onnx

ROOT = os.environ["KVLIFT_ROOT"]
sys.path.insert(0, os.path.join(ROOT, "tests"))
from decoders import player  # noqa: E402
from decoders.cases import build  # noqa: E402
from decoders.draw import random_spec  # noqa: E402
from decoders.edits import edit  # noqa: E402
from support.schemas import check_json  # noqa: E402

KVLIFT = os.environ["KVLIFT"]
FIRST = int(os.environ.get("KVLIFT_FIRST_EDIT", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("KVLIFT_EDITS", "60")))


def kvlift(*arguments):
    return subprocess.run([KVLIFT, *arguments], capture_output=True, text=True, timeout=120)


def differs(source, edited, manifest, host, spec):
    """What ONNX Runtime says: True, False, or None where it does not run the edited model."""
    try:
        for seed in (11, 12):
            player.compare(source, edited, manifest, host, spec.vocab, spec.hidden, seed)
    except player.Difference:
        return True
    except Exception:  # pylint: disable=broad-except
        return None
    return False


def outcome(seed):
    """(what happened, detail)."""
    with tempfile.TemporaryDirectory() as folder:
        source, target, edited = (os.path.join(folder, f"{x}.onnx") for x in ("a", "b", "c"))
        spec = random_spec(seed)
        model, host = build(spec)
        onnx.save(model, source)
        if kvlift("convert", source, "-o", target, "--quiet").returncode != 0:
            return "not converted", ""
        with open(os.path.join(folder, "b.kv.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        changed = onnx.load(target)
        what = edit(changed, seed)
        if what is None:
            return "not edited", ""
        onnx.save(changed, edited)
        shown = differs(source, edited, manifest, host, spec)
        if shown is None:
            return "does not run", what
        done = kvlift(
            "verify", source, edited, "--manifest", os.path.join(folder, "b.kv.json"), "--json"
        )
        if done.returncode not in (0, 1, 4):
            return "fault", f"{what}: exit {done.returncode} {done.stderr[:200]}"
        verdict = check_json(done.stdout)
        if shown and verdict["reason"].startswith("KV402"):
            return "not fed", what  # the source itself, whatever the edit
        if shown and verdict["verdict"] != "different":
            return "missed", f"{what}: {verdict['verdict']} {verdict['reason'][:160]}"
        return ("different" if shown else "the same"), what


def guarded(seed):
    try:
        return outcome(seed)
    except Exception as error:  # pylint: disable=broad-except
        return "fault", f"{type(error).__name__}: {str(error)[:200]}"


class EditsTest(unittest.TestCase):
    def test_every_edit_that_shows_is_different(self):
        wrong, counts = [], {}
        with concurrent.futures.ProcessPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
            for seed, (what, detail) in zip(SEEDS, pool.map(guarded, SEEDS, chunksize=5)):
                counts[what] = counts.get(what, 0) + 1
                if what in ("missed", "fault"):
                    wrong.append(f"seed {seed}: {what} {detail}")
        print(counts)
        self.assertFalse(wrong, "\n" + "\n".join(wrong))
        self.assertGreater(counts.get("different", 0), len(SEEDS) // 4)
        self.assertLessEqual(counts.get("not fed", 0), len(SEEDS) // 60)


if __name__ == "__main__":
    unittest.main()

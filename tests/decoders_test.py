"""Decoders in the idioms of many exporters through `kvlift convert`: named ones and random ones.

Each converts, and then computes the same as its original, or is refused with a code.
Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""

import concurrent.futures
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import onnx

ROOT = os.environ["KVLIFT_ROOT"]
sys.path.insert(0, os.path.join(ROOT, "tests"))
from decoders import player  # noqa: E402
from decoders.cases import CASES, build  # noqa: E402
from decoders.draw import random_spec  # noqa: E402
from support.schemas import check_json  # noqa: E402

KVLIFT = os.environ["KVLIFT"]
SEEDS = range(int(os.environ.get("KVLIFT_SEEDS", "100")))
CODE = re.compile(r"^KV\d{3}$")
ROWS = (
    [f"C{i}" for i in range(1, 16)]
    + ["C5b"]
    + [f"S{i}" for i in range(1, 18)]
    + [f"R{i}" for i in range(1, 9)]
    + [f"O{i}" for i in range(1, 9)]
    + [f"M{i}" for i in range(1, 12)]
)


def codes_of(folder, document):
    """The codes of a refusal, near misses included."""
    found = {
        r["code"]
        for k in ("caches", "attention")
        for r in [c.get("reason") for c in document[k]]
        if r
    }
    if not found:
        done = subprocess.run(
            [KVLIFT, "inspect", os.path.join(folder, "in.onnx"), "--json"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        found = {n["code"] for n in check_json(done.stdout)["near_misses"]}
    return sorted(found)


def outcome(spec, *flags):
    """(what happened, detail): converted, refused, or inconclusive; anything else is a fault.

    Inconclusive is what ran equal in ONNX Runtime, while the proof lacks an operator.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "in.onnx"), os.path.join(folder, "out.onnx")
        model, host = build(spec)
        onnx.save(model, source)
        done = subprocess.run(
            [KVLIFT, "convert", source, "-o", target, "--json", *flags],
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode not in (0, 1, 4):
            return "fault", f"exit {done.returncode}: {done.stderr[:300]}"
        document = check_json(done.stdout)
        if done.returncode == 1 and document["status"] in ("refused", "nothing"):
            codes = codes_of(folder, document)
            if os.path.exists(target):
                return "fault", "refused, yet written"
            named = all(CODE.match(c) for c in codes) and (codes or not host["caches"])
            return "refused" if named else "fault", ",".join(codes) or "no code"
        verified = document["verify"] or {}
        if verified.get("verdict") == "different":
            return "fault", f"verify: {verified.get('reason')}"
        if verified.get("verdict") == "inconclusive":  # nothing is written then
            what, detail = outcome(spec, "--accept", "unproved")
            return ("inconclusive", verified["reason"]) if what == "converted" else (what, detail)
        with open(os.path.join(folder, "out.kv.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        try:
            player.compare(source, target, manifest, host, spec.vocab, spec.hidden)
        except player.Difference as difference:
            return "fault", f"differs: {difference}"
        return "converted", ""


def guarded(spec, *flags):
    try:
        return outcome(spec, *flags)
    except Exception as error:  # pylint: disable=broad-except
        return "fault", f"{type(error).__name__}: {str(error)[:300]}"


def run_all(specs, *flags):
    with concurrent.futures.ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
        return list(zip(specs, pool.map(lambda s: guarded(s, *flags), specs)))


def seed_outcome(seed):
    return guarded(random_spec(seed), "--verify")


class DecodersTest(unittest.TestCase):
    def test_each_named_decoder_ends_as_it_should(self):
        wrong = []
        for spec, (what, detail) in run_all(CASES):
            right = {"convert": ("converted",), "refuse": ("refused",)}.get(
                spec.expect, ("converted", "refused")
            )
            if what not in right:
                wrong.append(f"{spec.name}: {what} {detail}, expected {' or '.join(right)}")
        self.assertFalse(wrong, "\n" + "\n".join(wrong))

    def test_random_decoders_convert_or_refuse(self):
        wrong, counts = [], {}
        with concurrent.futures.ProcessPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
            for seed, (what, detail) in zip(SEEDS, pool.map(seed_outcome, SEEDS, chunksize=5)):
                counts[what] = counts.get(what, 0) + 1
                if what not in ("converted", "refused", "inconclusive"):
                    wrong.append(f"seed {seed}: {what} {detail}")
        print(counts)
        self.assertFalse(wrong, "\n" + "\n".join(wrong))
        self.assertGreater(counts.get("converted", 0), len(SEEDS) // 2)
        self.assertLess(counts.get("inconclusive", 0), len(SEEDS) // 12)

    def test_every_pattern_has_a_case(self):
        named = {row for spec in CASES for row in spec.rows}
        for path in glob.glob(os.path.join(ROOT, "testdata", "rewrites", "*.onnxtxt")):
            with open(path, encoding="utf-8") as file:
                named |= set(
                    re.findall(r"\b[CSROM]\d+b?\b", "".join(x for x in file if x.startswith("#")))
                )
        self.assertFalse([row for row in ROWS if row not in named])


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""A Llama-like decoder with growing caches, before and after conversion, timed in ONNX Runtime.

The model is that of llama.py with growing caches. `kvlift convert --target ort` (env KVLIFT: the
binary) makes the other one, whose caches are bound in place: one OrtValue is both the past and the
present. Both run in one process, round after round in turn; the minimum counts.
Where the weights land in memory moves the times of a process by several percent, so this is done in
several fresh processes; the minimum over all of them counts.

  decoder.py            the ratios converted/original; exit 1 if one is over its limit
  decoder.py --quick    one line in a few seconds, from a smaller model; no limits
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort

from llama import QUICK, SMALL, build


@dataclass(frozen=True)
class Case:
    name: str
    new: int    # tokens of the step
    total: int  # valid tokens after it
    limit: float


CAPACITY = 4096
CASES = (Case("decode 16", 1, 16, 1.02), Case("decode 512", 1, 512, 0.85),
         Case("decode 4095", 1, 4095, 0.65), Case("prefill 128", 128, 128, 1.05))


def convert(source, target):
    kvlift = os.environ.get("KVLIFT")
    if not kvlift:
        sys.exit("set KVLIFT to the kvlift binary")
    run = subprocess.run([kvlift, "convert", source, "-o", target, "--target", "ort", "--force",
                          "--quiet"])
    if run.returncode != 0:
        sys.exit(f"kvlift convert: exit {run.returncode}")


class Runner:
    """One model in ONNX Runtime, inputs and outputs bound."""

    def __init__(self, path, threads):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        inputs = self.session.get_inputs()
        self.types = {i.name: i.shape for i in inputs}
        self.caches = {i.name: o.name for i, o in
                       zip([i for i in inputs if len(i.shape) == 4],
                           [o for o in self.session.get_outputs() if len(o.shape) == 4])}
        self.in_place = "write_indices" in self.types

    def bind(self, case, size, tokens, past):
        """`past`: an array [1, Nk, CAPACITY, D] by the name of its input."""
        length = case.total - case.new
        feeds = {"input_ids": tokens, "position_ids": np.arange(length, case.total)[None]}
        if self.in_place:
            feeds["write_indices"] = np.array([length])
        self.binding = self.session.io_binding()
        self.kept = []
        for name, array in feeds.items():
            self.keep(name, array)
        for name, output in self.caches.items():
            # A copy: the buffer is written in place.
            held = past[name].copy() if self.in_place else past[name][:, :, :length].copy()
            value = self.keep(name, held)
            if self.in_place:
                self.binding.bind_ortvalue_output(output, value)
            else:
                self.binding.bind_output(output)
        self.binding.bind_output("logits")

    def keep(self, name, array):
        value = ort.OrtValue.ortvalue_from_numpy(array)
        self.kept.append(value)
        self.binding.bind_ortvalue_input(name, value)
        return value

    def step(self):
        self.session.run_with_iobinding(self.binding)

    def logits(self):
        self.step()
        return self.binding.get_outputs()[-1].numpy().copy()  # bound last


def sample(runner, calls):
    start = time.perf_counter()
    for _ in range(calls):
        runner.step()
    return (time.perf_counter() - start) / calls


def measure(runners, rounds, least, settle):
    """Seconds per step of each runner: the minimum of the rounds."""
    calls = []
    for runner in runners:
        runner.step()
        calls.append(max(1, int(least / max(sample(runner, 1), 1e-6))))
    best = [float("inf")] * len(runners)
    for _ in range(rounds):
        for k, runner in enumerate(runners):
            runner.step()
            best[k] = min(best[k], sample(runner, calls[k]))
            time.sleep(settle)  # until the thread pool no longer spins
    return best


def run_case(case, runners, size, args):
    """Milliseconds per step, original and converted."""
    rng = np.random.default_rng(5)
    tokens = rng.integers(0, size.vocab, (1, case.new))
    past = {name: rng.standard_normal((1, size.kv_heads, CAPACITY, size.head), np.float32)
            for name in runners[0].caches}
    for runner in runners:
        runner.bind(case, size, tokens, past)
    expected, got = (runner.logits() for runner in runners)
    difference = float(np.abs(got - expected).max() / np.abs(expected).max())
    if not difference <= 1e-4:
        sys.exit(f"{case.name}: logits differ by {difference:.1e} of their maximum")
    settle = 0 if args.threads == 1 else 0.015
    return [s * 1e3 for s in measure(runners, args.rounds, args.sample_ms * 1e-3, settle)]


def run_cases(cases, paths, size, args):
    runners = [Runner(path, args.threads) for path in paths]
    return [run_case(case, runners, size, args) for case in cases]


def threads_of(args):
    return f"{args.threads} thread(s)" if args.threads else "its own number of threads"


def quick(paths, args):
    cases = CASES[:2]
    args.threads = args.threads or 1
    args.rounds = 100
    parts = [f"at {case.total} tokens {before:.2f} -> {after:.2f} ms ({after / before:.2f}x)"
             for case, (before, after) in zip(cases, run_cases(cases, paths, QUICK, args))]
    print(f"bench: decode step of a {QUICK.layers} x {QUICK.hidden} decoder in ONNX Runtime "
          f"{ort.__version__}, {threads_of(args)}: {', '.join(parts)}")
    return 0


def full(paths, args):
    print(f"decoder {SMALL.layers} x {SMALL.hidden}, fp32, capacity {CAPACITY}, ONNX Runtime "
          f"{ort.__version__}, {threads_of(args)}, minimum of {args.rounds} rounds in each of "
          f"{args.processes} processes\n")
    again = [sys.executable, os.path.abspath(__file__), "--worker", *paths, "--rounds",
             str(args.rounds), "--threads", str(args.threads), "--sample-ms", str(args.sample_ms)]
    runs = [json.loads(subprocess.run(again, check=True, stdout=subprocess.PIPE).stdout)
            for _ in range(args.processes)]
    print(f"{'case':<12} {'original ms':>12} {'converted ms':>13} {'ratio':>6} {'limit':>6}   "
          "by process")
    over = []
    for k, case in enumerate(CASES):
        before, after = (min(run[k][side] for run in runs) for side in range(2))
        ratio = after / before
        if ratio > case.limit:
            over.append(case.name)
        by_process = " ".join(f"{run[k][1] / run[k][0]:.3f}" for run in runs)
        print(f"{case.name:<12} {before:12.3f} {after:13.3f} {ratio:6.3f} {case.limit:6.2f}   "
              f"{by_process}{'  OVER' if ratio > case.limit else ''}")
    print("\n" + (f"over the limit: {', '.join(over)}" if over else "all within the limits"))
    return 1 if over else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=0,
                        help="of ONNX Runtime; default: as many as it takes itself")
    parser.add_argument("--sample-ms", type=float, default=5.0, help="least time of one sample")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)  # original, converted
    args = parser.parse_args()
    ort.set_default_logger_severity(3)
    if args.worker:
        print(json.dumps(run_cases(CASES, args.worker, SMALL, args)))
        return 0
    with tempfile.TemporaryDirectory(prefix="kvlift-bench-") as folder:
        paths = [os.path.join(folder, f"model-{name}.onnx") for name in ("original", "converted")]
        build(paths[0], QUICK if args.quick else SMALL)
        convert(*paths)
        return (quick if args.quick else full)(paths, args)


if __name__ == "__main__":
    sys.exit(main())

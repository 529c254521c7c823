#!/usr/bin/env python3
"""kvlift's executor and llama.cpp on decoders of one shape, in turn: decode at 16 tokens per byte of
weights, and what 4096 tokens add.

llama.cpp comes from the source distribution of the package llama-cpp-python:
  pip download --no-deps --no-binary llama-cpp-python llama-cpp-python==0.3.36
  tar xzf llama_cpp_python-0.3.36.tar.gz
  cmake -S llama_cpp_python-0.3.36/vendor/llama.cpp -B build -DCMAKE_BUILD_TYPE=Release \\
      -DBUILD_SHARED_LIBS=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF
  cmake --build build --target llama-bench

Each side runs in fresh processes; the least time counts, of llama.cpp with flash attention or
without. A ratio is llama.cpp's time per byte by kvlift's: higher is better.

Env: KVLIFT, the binary; LLAMA_BENCH, llama.cpp's.
"""
import argparse
import json
import os
import sys
import tempfile
import time

import gguf
import llama
from side_by_side import CAPACITY, Best, Probes, Table, binary, kvlift_decoder

KINDS = {"fp32": "F32", "fp16": "F16", "int8": "Q8_0", "int4": "Q4_0"}
TOKENS = 16  # generated at a time by llama-bench
DEEP = "fp16"  # of which the longer context is timed


def llama_bench(path, threads, depth, repetitions):
    """Seconds of a token."""
    out, _ = binary(os.environ["LLAMA_BENCH"], "-m", path, "-p", "0", "-n", str(TOKENS), "-d",
                    str(depth), "-t", str(threads), "-fa", "0,1", "-r", str(repetitions), "-o",
                    "json")
    return min(ns for run in json.loads(out) for ns in run["samples_ns"]) * 1e-9 / TOKENS


class Pair:
    """Both programs on one type of weights."""

    def __init__(self, folder, type_name):
        self.type_name, stem = type_name, os.path.join(folder, f"medium-{type_name}")
        self.gguf = stem + ".gguf"
        self.bytes = gguf.write(self.gguf, llama.MEDIUM, KINDS[type_name])
        llama.build(f"{stem}-concat.onnx", llama.MEDIUM, type_name)
        self.model = f"{stem}-kv.onnx"
        binary(os.environ["KVLIFT"], "convert", f"{stem}-concat.onnx", "-o", self.model, "--force",
               "--quiet")
        self.files = [self.gguf, stem + ".data"]

    def compare(self, threads, processes, table):
        ours, theirs, own_bytes = Best(), Best(), 0
        deep = self.type_name == DEEP and threads > 1
        cases = [("16", 1, 16)] + ([("4096", 1, CAPACITY)] if deep else [])
        for k in range(processes):
            _, own_bytes = kvlift_decoder(self.model, threads, cases, CAPACITY, 12, ours)
            theirs.add({"16": llama_bench(self.gguf, threads, TOKENS, 5)})
            if deep and k == 0:
                theirs.add({"4096": llama_bench(self.gguf, threads, CAPACITY - TOKENS, 2)})
        what = f"medium {self.type_name}, {threads} thr"
        table.row(f"{what}: decode 16, per byte", ours["16"],
                  theirs["16"] / self.bytes * own_bytes, 1.0, 1.1)
        read = Probes.best[threads][0] * 1e9
        print(f"| {what}: of the read probe, kvlift; llama.cpp | "
              f"{own_bytes / ours['16'] / read:.2f} | {self.bytes / theirs['16'] / read:.2f} "
              "| | | | |", flush=True)
        if deep:
            table.row(f"{what}: added by 4096 tokens", ours["4096"] - ours["16"],
                      theirs["4096"] - theirs["16"], 0.5, 0.25, most=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")],
                        default=[1, 2])
    parser.add_argument("--processes", type=int, default=3, help="of each side")
    parser.add_argument("--folder", help="for the models, 4 GB; default: the temporary folder")
    args = parser.parse_args()
    if not os.environ.get("KVLIFT") or not os.environ.get("LLAMA_BENCH"):
        parser.error("set KVLIFT and LLAMA_BENCH")
    start = time.perf_counter()
    table = Table("Decoders against llama.cpp", "llama.cpp ms (of as many bytes)")
    with tempfile.TemporaryDirectory(prefix="kvlift-bench-", dir=args.folder) as folder:
        for type_name in args.types:
            pair = Pair(folder, type_name)
            for threads in args.threads:
                pair.compare(threads, args.processes, table)
            for path in pair.files:
                os.remove(path)
    Probes.show()
    print(f"{time.perf_counter() - start:.0f} s, load average {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Decode attention of one layer (32 query heads, 8 key heads, 128 elements) against ONNX Runtime.

kvlift's kernel runs in attention_bench (env ATTENTION_BENCH: the binary, built by the target
`benches`), ONNX Runtime in a process of this script. Both sides run in fresh processes in turn, and
the least time of each counts. Caches are as many as exceed the processor's caches, used in turn.

  attention24  Attention-24 on whole caches with nonpad_kv_seqlen
  gqa          GroupQueryAttention of com.microsoft, past and present bound to one buffer
"""
import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

N, NK, D = 32, 8, 128
TYPES = {"fp32": (TensorProto.FLOAT, np.float32, 0), "fp16": (TensorProto.FLOAT16, np.float16, 1)}
TOTAL_BYTES = 256 << 20


def model(kind, dtype):
    value = helper.make_tensor_value_info
    if kind == "gqa":
        node = helper.make_node(
            "GroupQueryAttention", ["q", "k", "v", "pk", "pv", "lengths", "total"],
            ["y", "ok", "ov"], domain="com.microsoft", num_heads=N, kv_num_heads=NK)
        cache = [1, NK, "m", D]
        inputs = [value("q", dtype, [1, 1, N * D]), value("k", dtype, [1, 1, NK * D]),
                  value("v", dtype, [1, 1, NK * D]), value("pk", dtype, cache),
                  value("pv", dtype, cache), value("lengths", TensorProto.INT32, [1]),
                  value("total", TensorProto.INT32, [1])]
        outputs = [value("y", dtype, None), value("ok", dtype, cache), value("ov", dtype, cache)]
    else:
        node = helper.make_node("Attention", ["q", "k", "v", "", "", "", "valid"], ["y"],
                                is_causal=1)
        inputs = [value("q", dtype, [1, N, 1, D]), value("k", dtype, [1, NK, "m", D]),
                  value("v", dtype, [1, NK, "m", D]), value("valid", TensorProto.INT64, [1])]
        outputs = [value("y", dtype, None)]
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node], kind, inputs, outputs),
                             opset_imports=opsets, ir_version=10)


def bindings(session, kind, numpy_type, valid, capacity):
    """One binding per cache."""
    size = np.dtype(numpy_type).itemsize
    count = max(2, min(TOTAL_BYTES // (2 * NK * valid * D * size),
                       (1 << 30) // (2 * NK * capacity * D * size)))
    block = np.random.default_rng(0).standard_normal(1 << 20, np.float32).astype(numpy_type)
    wrap = ort.OrtValue.ortvalue_from_numpy

    def noise(*shape):
        return wrap(np.resize(block, shape))

    for _ in range(count):
        io = session.io_binding()
        k, v = noise(1, NK, capacity, D), noise(1, NK, capacity, D)
        if kind == "gqa":
            feeds = {"q": noise(1, 1, N * D), "k": noise(1, 1, NK * D), "v": noise(1, 1, NK * D),
                     "pk": k, "pv": v, "lengths": wrap(np.array([valid - 1], np.int32)),
                     "total": wrap(np.array([valid], np.int32))}
            io.bind_ortvalue_output("ok", k)
            io.bind_ortvalue_output("ov", v)
        else:
            feeds = {"q": noise(1, N, 1, D), "k": k, "v": v,
                     "valid": wrap(np.array([valid], np.int64))}
        for name, value in feeds.items():
            io.bind_ortvalue_input(name, value)
        io.bind_output("y")
        yield io, feeds


def time_ort(kind, type_name, valid, capacity, threads, rounds):
    dtype, numpy_type, _ = TYPES[type_name]
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model(kind, dtype).SerializeToString(), options,
                                   providers=["CPUExecutionProvider"])
    kept = list(bindings(session, kind, numpy_type, valid, capacity))
    best = float("inf")
    for _ in range(rounds):
        for io, _feeds in kept:
            start = time.perf_counter()
            session.run_with_iobinding(io)
            best = min(best, time.perf_counter() - start)
    return best


def time_kvlift(type_name, valid, factor, threads):
    name = (f"DecodeAttention/valid:{valid}/capacity:{factor}/type:{TYPES[type_name][2]}"
            f"/threads:{threads}/")
    out = subprocess.run(
        [os.environ["ATTENTION_BENCH"], f"--benchmark_filter={name}", "--benchmark_format=json"],
        check=True, capture_output=True, text=True, timeout=600)
    run = json.loads(out.stdout)["benchmarks"][0]
    size = np.dtype(TYPES[type_name][1]).itemsize
    return 2 * NK * valid * D * size / (run["rate"] * 1e9), run["of_read"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=3, help="per side")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        kind, type_name, *numbers = args.child
        print(time_ort(kind, type_name, *map(int, numbers), args.rounds))
        return 0
    print("type threads valid capacity kvlift_us of_read attention24 gqa")
    for type_name in TYPES:
        for threads in map(int, args.threads.split(",")):
            for valid, factor in ((2048, 1), (4096, 1), (2048, 8), (4096, 8)):
                kinds = ("attention24", "gqa") if factor == 1 else ("attention24",)
                ours, read, theirs = float("inf"), 0.0, dict.fromkeys(kinds, float("inf"))
                for _ in range(args.processes):
                    seconds, of_read = time_kvlift(type_name, valid, factor, threads)
                    ours, read = min(ours, seconds), max(read, of_read)
                    for kind in kinds:
                        child = subprocess.run(
                            [sys.executable, __file__, "--rounds", str(args.rounds), "--child",
                             kind, type_name, str(valid), str(valid * factor), str(threads)],
                            check=True, capture_output=True, text=True, timeout=600)
                        theirs[kind] = min(theirs[kind], float(child.stdout))
                ratios = " ".join(f"{theirs[k] / ours:.2f}x" if k in theirs else "-"
                                  for k in ("attention24", "gqa"))
                print(type_name, threads, valid, valid * factor, f"{ours * 1e6:.0f}",
                      f"{read:.2f}", ratios, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

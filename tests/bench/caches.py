#!/usr/bin/env python3
"""Decode attention over int8 caches against fp32 caches, both in the executor.

Layers of nothing but attention (8 query heads, 2 key heads, 64 elements) at 16,384 tokens;
`kvlift convert` (env KVLIFT: the binary) makes one model with fp32 caches and one with
--quantize-cache int8:32. One layer's caches fit in a large processor's caches, where nothing is read
from memory: that is measured beside, without a limit. Those of eight do not. Both models run in fresh processes in turn; the least time of each counts. The same by the
kernels alone, with 32 query heads, 8 key heads and 128 elements, and how far results are from each
other, is what attention_bench (env BENCHES: where it lies) says.

Exit 1 if a ratio misses its limit.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

from onnx import TensorProto, helper, save

N, NK, D, CONTEXT = 8, 2, 64, 16384
FASTER, FEWER_BYTES = 1.8, 3.5


def build(path, layers):
    def value(name, heads, rows):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["B", heads, rows, D])

    nodes, x = [], "q"
    inputs = [value("q", N, "S"), value("k", NK, "S"), value("v", NK, "S")]
    outputs = [value("y", N, "S")]
    for layer in range(layers):
        y = "y" if layer == layers - 1 else f"y.{layer}"
        past = [f"past.{layer}.{role}" for role in ("key", "value")]
        present = [f"present.{layer}.{role}" for role in ("key", "value")]
        nodes.append(helper.make_node("Attention", [x, "k", "v", "", *past], [y, *present],
                                      is_causal=1))
        inputs += [value(name, NK, "P") for name in past]
        outputs += [value(name, NK, "P + S") for name in present]
        x = y
    graph = helper.make_graph(nodes, "attention", inputs, outputs)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)


def tool(*arguments):
    run = subprocess.run([os.environ["KVLIFT"], *arguments, "--json"], stdout=subprocess.PIPE,
                         text=True)
    if run.returncode != 0:
        sys.exit(f"kvlift {' '.join(arguments)}: exit {run.returncode}")
    return json.loads(run.stdout)


def step_us(path, threads):
    result = tool("bench", path, "--context", str(CONTEXT), "--threads", str(threads),
                  "--repetitions", "20")
    return result["cases"][0]["step_us"]["min"]


def row(work, threads, wide, narrow, limit=FASTER):
    """Prints a ratio; whether it keeps its limit, if any."""
    ratio = wide / narrow
    kept = limit is None or ratio >= limit
    verdict = "" if limit is None else "met" if kept else "MISSED"
    print(f"| {work} | {threads} | {wide:.0f} | {narrow:.0f} | {ratio:.2f} | {limit or ''} | "
          f"{verdict} |", flush=True)
    return kept


def time_models(folder, layers, rounds):
    source, wide, narrow = (os.path.join(folder, f"{name}.onnx") for name in "swn")
    build(source, layers)
    tool("convert", source, "-o", wide, "--force")
    tokens = tool("convert", source, "-o", narrow, "--quantize-cache", "int8:32",
                  "--force")["quantization"]["bytes_per_token"]
    kept = True
    for threads in (1, 2):
        times = [[step_us(path, threads) for path in (wide, narrow)] for _ in range(rounds)]
        kept &= row(f"{layers} layer(s)", threads, *(min(side) for side in zip(*times)),
                    limit=None if layers == 1 else FASTER)
    return kept, tokens["before"] / tokens["after"]


def time_kernels(rounds):
    best, error = {}, 0
    for _ in range(rounds):
        out = subprocess.run(
            [os.path.join(os.environ["BENCHES"], "attention_bench"), "--benchmark_format=json",
             f"--benchmark_filter=DecodeQuantized/valid:{CONTEXT}/"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout
        for b in json.loads(out)["benchmarks"]:
            old = best.get(b["name"], (float("inf"),) * 2)
            best[b["name"]] = min(old[0], b["fp32_us"]), min(old[1], b["int8_us"])
            error = max(error, b["error"])
    kept = True
    for name, times in best.items():
        threads = name.split("threads:")[1].split("/")[0]
        kept &= row("the kernels, 32 heads on 8, D = 128", threads, *times)
    return kept, error


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="processes of each side")
    args = parser.parse_args()
    print(f"decode attention, {CONTEXT} tokens, int8 caches in groups of 32 against fp32\n\n"
          "| work | threads | fp32 us | int8 us | faster | limit | |\n"
          "| --- | --- | --- | --- | --- | --- | --- |")
    kept = True
    with tempfile.TemporaryDirectory(prefix="kvlift-bench-") as folder:
        for layers in (1, 8):
            fast, fewer = time_models(folder, layers, args.rounds)
            kept &= fast
    fast, error = time_kernels(max(2, args.rounds // 3))
    kept &= fast and fewer >= FEWER_BYTES
    print(f"\ncache bytes per token: {fewer:.2f} times fewer, limit {FEWER_BYTES}; outputs "
          f"{error:.1e} of their maximum away")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

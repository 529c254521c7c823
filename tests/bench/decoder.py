#!/usr/bin/env python3
"""A Llama-like decoder with growing caches, before and after conversion, timed in ONNX Runtime.

The model is made here with random weights: Concat caches, repeat_kv by Unsqueeze, Expand and
Reshape, a mask from comparing keys with position_ids, everything written out.
`kvlift convert --target ort` (env KVLIFT: the binary) makes the other one, whose caches are bound
in place: one OrtValue is both the past and the present. Both run in one process, round after round
in turn; the minimum counts.
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
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper


@dataclass(frozen=True)
class Size:
    layers: int
    hidden: int
    q_heads: int
    kv_heads: int
    head: int
    ffn: int
    vocab: int


SMALL = Size(layers=8, hidden=512, q_heads=8, kv_heads=2, head=64, ffn=1408, vocab=8192)
QUICK = Size(layers=4, hidden=256, q_heads=8, kv_heads=2, head=32, ffn=704, vocab=2048)


@dataclass(frozen=True)
class Case:
    name: str
    new: int    # tokens of the step
    total: int  # valid tokens after it
    limit: float


CAPACITY = 4096
CASES = (Case("decode 16", 1, 16, 1.02), Case("decode 512", 1, 512, 0.85),
         Case("decode 4095", 1, 4095, 0.65), Case("prefill 128", 128, 128, 1.05))


class Builder:
    """Nodes and constants of the graph; weights go to the external data file."""

    def __init__(self, data):
        self.data, self.offset = data, 0
        self.rng = np.random.default_rng(11)
        self.nodes, self.initializers, self.known = [], [], {}

    def weight(self, name, *shape, centre=0.0, scale=None):
        scale = shape[0] ** -0.5 if scale is None else scale
        values = self.rng.standard_normal(shape, np.float32) * np.float32(scale) + np.float32(centre)
        raw = values.tobytes()
        self.data.write(b"\0" * (-self.offset % 4096) + raw)
        self.offset += -self.offset % 4096
        tensor = TensorProto(name=name, dims=shape, data_type=TensorProto.FLOAT,
                             data_location=TensorProto.EXTERNAL)
        where = {"location": os.path.basename(self.data.name), "offset": self.offset,
                 "length": len(raw)}
        for key, value in where.items():
            tensor.external_data.add(key=key, value=str(value))
        self.offset += len(raw)
        self.initializers.append(tensor)
        return name

    def const(self, values, dtype=np.int64):
        array = np.asarray(values, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.known:
            self.known[key] = f"const_{len(self.known)}"
            self.initializers.append(numpy_helper.from_array(array, self.known[key]))
        return self.known[key]

    def __call__(self, op, *inputs, name=None, **attributes):
        name = name or f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"node_{len(self.nodes)}",
                                           **attributes))
        return name


def rms_norm(g, x, weight):
    squares = g("ReduceMean", g("Mul", x, x), g.const([-1]), keepdims=1)
    root = g("Sqrt", g("Add", squares, g.const(1e-5, np.float32)))
    return g("Mul", g("Div", x, root), weight)


def rotate(g, x, cos, sin, half):
    last, start, middle, end = (g.const([v]) for v in (-1, 0, half, 2 * half))
    swapped = g("Concat", g("Neg", g("Slice", x, middle, end, last)),
                g("Slice", x, start, middle, last), axis=-1)
    return g("Add", g("Mul", x, cos), g("Mul", swapped, sin))


def repeat_kv(g, x, size):
    """[1, Nk, T, D] -> [1, N, T, D], with T and the rest taken from Shape."""
    shape = g("Shape", x)
    front = g("Slice", shape, g.const([0]), g.const([2]))
    back = g("Slice", shape, g.const([2]), g.const([4]))
    wide = g("Concat", front, g.const([size.q_heads // size.kv_heads]), back, axis=0)
    return g("Reshape", g("Expand", g("Unsqueeze", x, g.const([2])), wide),
             g.const([0, size.q_heads, -1, size.head]))


def attention(g, x, layer, size, cos, sin, mask):
    def heads(name, count):
        flat = g("MatMul", x, g.weight(f"l{layer}.{name}", size.hidden, count * size.head))
        return g("Transpose", g("Reshape", flat, g.const([0, 0, -1, size.head])),
                 perm=[0, 2, 1, 3])
    q = rotate(g, heads("q", size.q_heads), cos, sin, size.head // 2)
    k = rotate(g, heads("k", size.kv_heads), cos, sin, size.head // 2)
    v = heads("v", size.kv_heads)
    keys = g("Concat", f"past.{layer}.key", k, name=f"present.{layer}.key", axis=2)
    values = g("Concat", f"past.{layer}.value", v, name=f"present.{layer}.value", axis=2)
    transposed = g("Transpose", repeat_kv(g, keys, size), perm=[0, 1, 3, 2])
    scores = g("Div", g("MatMul", q, transposed), g.const(size.head ** 0.5, np.float32))
    mixed = g("MatMul", g("Softmax", g("Add", scores, mask), axis=-1), repeat_kv(g, values, size))
    flat = g("Reshape", g("Transpose", mixed, perm=[0, 2, 1, 3]),
             g.const([0, 0, size.q_heads * size.head]))
    return g("MatMul", flat, g.weight(f"l{layer}.o", size.q_heads * size.head, size.hidden))


def feed_forward(g, x, layer, size):
    gate = g("MatMul", x, g.weight(f"l{layer}.gate", size.hidden, size.ffn))
    up = g("MatMul", x, g.weight(f"l{layer}.up", size.hidden, size.ffn))
    return g("MatMul", g("Mul", g("Mul", gate, g("Sigmoid", gate)), up),
             g.weight(f"l{layer}.down", size.ffn, size.hidden))


def positions(g, size):
    """cos, sin [1, 1, S, D] and the additive mask [1, 1, S, T]."""
    rates = 10000.0 ** -(np.arange(0, size.head, 2) / size.head)
    angles = g("Mul", g("Unsqueeze", g("Cast", "position_ids", to=TensorProto.FLOAT), g.const([2])),
               g.const(rates.reshape(1, 1, -1), np.float32))
    both = g("Unsqueeze", g("Concat", angles, angles, axis=-1), g.const([1]))
    past = g("Gather", g("Shape", "past.0.key"), g.const(2))
    total = g("Add", past, g("Gather", g("Shape", "input_ids"), g.const(1)))
    slots = g("Unsqueeze", g("Range", g.const(0), total, g.const(1)), g.const([0, 1, 2]))
    seen = g("LessOrEqual", slots, g("Unsqueeze", "position_ids", g.const([1, 3])))
    mask = g("Where", seen, g.const(0, np.float32),
             g.const(np.finfo(np.float32).min, np.float32))
    return g("Cos", both), g("Sin", both), mask


def build(path, size):
    """Writes the decoder and its weights."""
    info = helper.make_tensor_value_info
    inputs = [info(n, TensorProto.INT64, [1, "S"]) for n in ("input_ids", "position_ids")]
    outputs = [info("logits", TensorProto.FLOAT, [1, "S", size.vocab])]
    for layer in range(size.layers):
        for role in ("key", "value"):
            shape = [1, size.kv_heads, "P", size.head]
            inputs.append(info(f"past.{layer}.{role}", TensorProto.FLOAT, shape))
            outputs.append(info(f"present.{layer}.{role}", TensorProto.FLOAT,
                                [1, size.kv_heads, "T", size.head]))
    with open(path + ".data", "wb") as data:
        g = Builder(data)
        cos, sin, mask = positions(g, size)
        x = g("Gather", g.weight("embedding", size.vocab, size.hidden, scale=1.0), "input_ids")
        for layer in range(size.layers):
            norms = [g.weight(f"l{layer}.norm{k}", size.hidden, centre=1, scale=0.02)
                     for k in range(2)]
            x = g("Add", x, attention(g, rms_norm(g, x, norms[0]), layer, size, cos, sin, mask))
            x = g("Add", x, feed_forward(g, rms_norm(g, x, norms[1]), layer, size))
        last = rms_norm(g, x, g.weight("norm", size.hidden, centre=1, scale=0.02))
        g("MatMul", last, g.weight("head", size.hidden, size.vocab), name="logits")
    graph = helper.make_graph(g.nodes, "decoder", inputs, outputs, g.initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(model, path)


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
    settle = 0.015 if args.threads > 1 else 0
    return [s * 1e3 for s in measure(runners, args.rounds, args.sample_ms * 1e-3, settle)]


def run_cases(cases, paths, size, args):
    runners = [Runner(path, args.threads) for path in paths]
    return [run_case(case, runners, size, args) for case in cases]


def quick(paths, args):
    cases = CASES[:2]
    args.rounds = 100
    parts = [f"at {case.total} tokens {before:.2f} -> {after:.2f} ms ({after / before:.2f}x)"
             for case, (before, after) in zip(cases, run_cases(cases, paths, QUICK, args))]
    print(f"bench: decode step of a {QUICK.layers} x {QUICK.hidden} decoder in ONNX Runtime "
          f"{ort.__version__}, {args.threads} thread(s): {', '.join(parts)}")
    return 0


def full(paths, args):
    print(f"decoder {SMALL.layers} x {SMALL.hidden}, fp32, capacity {CAPACITY}, ONNX Runtime "
          f"{ort.__version__}, {args.threads} thread(s), minimum of {args.rounds} rounds in each of "
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
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sample-ms", type=float, default=5.0, help="least time of one sample")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)  # original, converted
    args = parser.parse_args()
    ort.set_default_logger_severity(3)
    if args.worker:
        print(json.dumps(run_cases(CASES, args.worker, SMALL, args)))
        return 0
    with tempfile.TemporaryDirectory(prefix="kvlift-bench-") as folder:
        paths = [os.path.join(folder, name) for name in ("original.onnx", "converted.onnx")]
        build(paths[0], QUICK if args.quick else SMALL)
        convert(*paths)
        return (quick if args.quick else full)(paths, args)


if __name__ == "__main__":
    sys.exit(main())

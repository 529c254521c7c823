#!/usr/bin/env python3
"""kvlift's executor and ONNX Runtime on the same work, side by side, as the ratios that matter.

Both sides run in fresh processes in turn; the least time of each counts. Every side runs at least
--processes times, and five times where a ratio is under 1.2. The caches of ONNX Runtime are bound
in place where its form of the model allows: one OrtValue is both the past and the present. A ratio is
ONNX Runtime's time by kvlift's: higher is better. Models are made by llama.py and converted by
`kvlift convert`.

  side_by_side.py                    everything; some minutes
  side_by_side.py --only decoder --sizes medium --types fp32 --threads 1,2

Env: KVLIFT, the binary; BENCHES, the folder of attention_bench.
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import llama

CAPACITY = 4096
SIZES = {"medium": llama.MEDIUM, "small": llama.SMALL, "tiny": llama.TINY}
CLOSE, PROCESSES_WHEN_CLOSE = 1.2, 5
# Rows of the table: what of it, against what of ONNX Runtime, least ratio, ratio hoped for.
DECODER_GATES = {
    ("medium", "fp32"): [("decode 16", "concat", 0.98, 1.1), ("decode 16", "static", 1.15, 1.35),
                         ("decode 4096", "concat", 2.0, 2.7), ("decode 4096", "static", 1.1, 1.25),
                         ("prefill 128", "concat", 1.08, None),
                         ("prefill 128", "static", 1.5, None)],
    ("medium", "fp16"): [("decode 16", "concat", 2.1, 2.3), ("decode 16", "static", 2.5, 3.5),
                         ("decode 4096", "concat", 2.1, 2.3), ("decode 4096", "static", 2.5, 3.5)],
    ("medium", "bf16"): [("decode 16", "concat", 2.1, 2.3), ("decode 16", "static", 2.5, 3.5),
                         ("decode 4096", "concat", 2.1, 2.3), ("decode 4096", "static", 2.5, 3.5)],
    ("medium", "int4"): [("decode 16", "concat", 1.0, 1.1), ("decode 16", "static", 1.0, None),
                         ("decode 4096", "concat", 2.0, None),
                         ("decode 4096", "static", 1.0, None),
                         ("prefill 128", "concat", 1.0, None)],
    ("small", "fp32"): [("decode 16", "static", 1.6, None), ("decode 16", "concat", None, None),
                        ("decode 4096", "concat", None, None)],
    ("tiny", "fp32"): [("decode 16", "static", 2.0, None), ("decode 16", "concat", None, None)],
}
ATTENTION_GATES = {  # by type, threads
    ("attention24", "fp32", 1): (3.0, 4.5), ("attention24", "fp32", 2): (2.0, 3.0),
    ("attention24", "fp16", 1): (4.0, 6.0), ("attention24", "fp16", 2): (4.0, 6.0),
    ("gqa", "fp32", 1): (1.4, 1.7), ("gqa", "fp32", 2): (1.4, 1.7),
    ("gqa", "fp16", 1): (3.0, None), ("gqa", "fp16", 2): (3.0, None),
}
CAPACITY_GATE = (15.0, 25.0)
VALID, WIDE_VALID, WIDE_FACTOR = 4096, 2048, 8


class Table:
    """Prints rows as they become known."""

    def __init__(self, title, against):
        print(f"\n## {title}\n\n| work | ms | {against} | ratio | gate | stretch | |\n"
              "| --- | --- | --- | --- | --- | --- | --- |")

    def row(self, work, ours, theirs, gate=None, stretch=None, most=False):
        """Times in seconds. most: the ratio is ours by theirs and must not exceed the gate."""
        ratio = ours / theirs if most else theirs / ours
        verdict = ""
        if gate is not None:
            verdict = "met" if (ratio <= gate if most else ratio >= gate) else "MISSED"
        print(f"| {work} | {ours * 1e3:.4g} | {theirs * 1e3:.4g} | {ratio:.2f} | {show(gate)} | "
              f"{show(stretch)} | {verdict} |", flush=True)


def show(number):
    return "-" if number is None else f"{number:g}"


class Best(dict):
    """The least of what is added, by key."""

    def add(self, values):
        for key, value in values.items():
            self[key] = min(value, self.get(key, float("inf")))


class Probes:
    """The best of all probes by threads; processes that meet a slower machine show in them."""
    best = {}

    @classmethod
    def add(cls, threads, read=0.0, fma=0.0):
        old = cls.best.get(threads, (0.0, 0.0))
        cls.best[threads] = (max(read, old[0]), max(fma, old[1]))

    @classmethod
    def show(cls):
        print("\nProbes, the best of all processes: " + "; ".join(
            f"{threads} thread(s) {read:.1f} GB/s, {fma:.0f} GFLOP/s"
            for threads, (read, fma) in sorted(cls.best.items())))


def child(*what):
    """Runs this file in a fresh process; what it prints as JSON, and its peak memory in bytes."""
    out = subprocess.run([sys.executable, os.path.abspath(__file__), "--child", json.dumps(what)],
                         check=True, stdout=subprocess.PIPE, text=True, timeout=900).stdout
    return json.loads(out)


def binary(path, *arguments):
    """Standard output and peak memory in bytes of a program."""
    process = subprocess.Popen([path, *arguments], stdout=subprocess.PIPE, text=True)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{path} {' '.join(arguments)}: exit {process.returncode}")
    return out, usage.ru_maxrss * 1024


# What runs in a child. onnxruntime is imported there only.


def ort_session(model, threads):
    import onnxruntime as ort
    ort.set_default_logger_severity(4)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def least(run, rounds, inner_seconds=2e-3):
    """Seconds of one call: the least of the rounds, each of as many calls as fill inner_seconds."""
    run()
    start = time.perf_counter()
    run()
    calls = max(1, int(inner_seconds / max(time.perf_counter() - start, 1e-7)))
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def ort_decoder(path, threads, cases, rounds):
    """Seconds by case name; "load": of making the session, "peak": bytes."""
    import numpy as np
    import onnxruntime as ort
    start = time.perf_counter()
    session = ort_session(path, threads)
    seconds = {"load": time.perf_counter() - start}
    inputs = session.get_inputs()
    names = {i.name for i in inputs}
    static = "write_indices" in names
    block = np.random.default_rng(5).standard_normal(1 << 18, np.float32)
    for name, new, total in cases:
        past = total - new
        feeds = {"input_ids": np.ones((1, new), np.int64),
                 "position_ids": np.arange(past, total)[None]}
        if static:
            feeds |= {"write_indices": np.array([past]), "nonpad_kv_seqlen": np.array([total])}
        binding, kept = session.io_binding(), []
        for i in inputs:
            if i.name not in feeds:
                dtype = np.float16 if "float16" in i.type else np.float32
                shape = (1, i.shape[1], CAPACITY if static else past, i.shape[3])
                feeds[i.name] = np.resize(block.astype(dtype), shape)
            kept.append(ort.OrtValue.ortvalue_from_numpy(feeds[i.name]))
            binding.bind_ortvalue_input(i.name, kept[-1])
            if i.name.startswith("past."):
                present = i.name.replace("past.", "present.")
                if static:
                    binding.bind_ortvalue_output(present, kept[-1])
                else:
                    binding.bind_output(present)
        binding.bind_output("logits")
        seconds[name] = least(lambda b=binding: session.run_with_iobinding(b),
                              rounds if new == 1 else 4)
    seconds["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return seconds


def ort_attention(type_name, threads, cases, rounds):
    """Seconds by "kind valid capacity"."""
    from attention import time_ort
    return {f"{kind} {valid} {capacity}":
            time_ort(kind, type_name, valid, capacity, threads, rounds)
            for kind, valid, capacity in cases}


def ort_scatter(type_name, capacity):
    """Seconds of writing one token to one of 16 caches in place, less what an empty run costs."""
    import numpy as np
    import onnxruntime as ort
    from onnx import TensorProto, helper
    onnx_type, dtype = llama.TYPES[type_name]
    heads, head, caches = 8, 128, 16
    info = helper.make_tensor_value_info

    def session_of(nodes, inputs, outputs):
        model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs),
                                  opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
        return ort_session(model.SerializeToString(), 1)

    at = ort.OrtValue.ortvalue_from_numpy(np.array([capacity // 2 + 3], np.int64))
    inputs, outputs, nodes, kept = [info("at", TensorProto.INT64, [1])], [], [], []
    for i in range(caches):
        cache, update = [1, heads, capacity, head], [1, heads, 1, head]
        inputs += [info(f"past{i}", onnx_type, cache), info(f"new{i}", onnx_type, update)]
        outputs.append(info(f"present{i}", onnx_type, cache))
        nodes.append(helper.make_node("TensorScatter", [f"past{i}", f"new{i}", "at"],
                                      [f"present{i}"], axis=-2))
        kept.append([ort.OrtValue.ortvalue_from_numpy(np.ones(s, dtype)) for s in (cache, update)])
    session = session_of(nodes, inputs, outputs)
    binding = session.io_binding()
    binding.bind_ortvalue_input("at", at)
    for i, (cache, update) in enumerate(kept):
        binding.bind_ortvalue_input(f"past{i}", cache)
        binding.bind_ortvalue_input(f"new{i}", update)
        binding.bind_ortvalue_output(f"present{i}", cache)
    empty = session_of([helper.make_node("Identity", ["at"], ["y"])], inputs[:1],
                       [info("y", TensorProto.INT64, [1])])
    nothing = empty.io_binding()
    nothing.bind_ortvalue_input("at", at)
    nothing.bind_output("y")
    full = least(lambda: session.run_with_iobinding(binding), 200)
    return (full - least(lambda: empty.run_with_iobinding(nothing), 200)) / caches


CHILDREN = {f.__name__: f for f in (ort_decoder, ort_attention, ort_scatter)}


# The parts of the bench.


def kvlift_decoder(path, threads, cases, capacity, rounds, best):
    """Adds seconds by case name, "load" and "peak"; cases of one number of new tokens. Nodes."""
    contexts = [str(total - new) for _, new, total in cases]
    out, _ = binary(os.environ["KVLIFT"], "bench", path, "--json", "--threads", str(threads),
                       "--context", *contexts, "--new-tokens", str(cases[0][1]), "--capacity",
                       str(capacity), "--repetitions", str(rounds if cases[0][1] == 1 else 4))
    report = json.loads(out)
    Probes.add(threads, report["machine"]["read_gbs"], report["machine"]["fma_gflops"])
    best.add({name: c["step_us"]["min"] * 1e-6
              for (name, _, _), c in zip(cases, report["cases"])})
    best.add({"load": report["model"]["load_us"] * 1e-6, "peak": report["model"]["load_peak_bytes"]})
    return report["model"]["nodes"], report["model"]["weight_bytes"]


def read_file(path):
    """Seconds of reading it, from the page cache where it is there."""
    buffer = bytearray(16 << 20)
    start = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - start


class DecoderBench:
    """One size, type and number of threads."""

    DECODE = [("decode 16", 1, 16), ("decode 4096", 1, CAPACITY)]
    PREFILL = [("prefill 128", 128, 128)]

    def __init__(self, folder, size, type_name, threads, results):
        self.size, self.type_name, self.threads = size, type_name, threads
        self.gates = DECODER_GATES[size, type_name]
        self.prefill = any(g[0].startswith("prefill") for g in self.gates)
        self.stem = os.path.join(folder, f"{size}-{type_name}")
        self.forms = [] if type_name == "bf16" else ["concat", "static"]
        self.ours, self.file = Best(), float("inf")
        self.theirs = {form: Best() for form in self.forms}
        if not self.forms:  # ONNX Runtime has no bf16 on this processor: its fp16 stands in
            self.theirs = results.get((size, "fp16", threads)) or {}
        self.nodes, self.weights = 0, 0
        self.rounds = 12 if size == "medium" else 40
        for form in self.forms or ["concat"]:
            llama.build(f"{self.stem}-{form}.onnx", SIZES[size], type_name, form)
        binary(os.environ["KVLIFT"], "convert", f"{self.stem}-concat.onnx", "-o",
               f"{self.stem}-kv.onnx", "--force", "--quiet")

    def round(self):
        self.file = min(self.file, read_file(self.stem + ".data"))
        model = f"{self.stem}-kv.onnx"
        self.nodes, self.weights = kvlift_decoder(model, self.threads, self.DECODE, CAPACITY,
                                                  self.rounds, self.ours)
        if self.prefill:
            kvlift_decoder(model, self.threads, self.PREFILL, CAPACITY, self.rounds, self.ours)
            small = Best()
            kvlift_decoder(model, self.threads, self.PREFILL, 512, self.rounds, small)
            self.ours.add({"prefill 128, capacity 512": small["prefill 128"]})
        cases = self.DECODE + (self.PREFILL if self.prefill else [])
        for form in self.forms:
            self.theirs[form].add(child("ort_decoder", f"{self.stem}-{form}.onnx", self.threads,
                                        cases, self.rounds))

    def close(self):
        """Whether a ratio is so small that chance may decide."""
        return any(self.theirs[form][case] < CLOSE * self.ours[case]
                   for case, form, gate, _ in self.gates if gate and form in self.theirs)

    def report(self, table):
        what = f"{self.size} {self.type_name}, {self.threads} thr"
        for case, form, gate, stretch in self.gates:
            if form not in self.theirs:
                print(f"| {what}: {case} | {self.ours[case] * 1e3:.4g} | - | - | - | - | |")
                continue
            against = form if self.forms else f"{form} (fp16)"
            table.row(f"{what}: {case} / ORT {against}", self.ours[case], self.theirs[form][case],
                      gate, stretch)
        if self.prefill:
            table.row(f"{what}: prefill 128, capacity 4096 / 512", self.ours["prefill 128"],
                      self.ours["prefill 128, capacity 512"], 1.02, None, most=True)
        if self.size == "medium":
            table.row(f"{what}: load and pack / reading the file", self.ours["load"], self.file,
                      1.5, 1.1, most=True)
            peak = self.ours["peak"] / os.path.getsize(self.stem + ".data")
            print(f"| {what}: peak memory of loading / weights | | | {peak:.2f} | - | - | |")
            rate = self.weights / self.ours["decode 16"] * 1e-9
            read = Probes.best[self.threads][0]
            print(f"| {what}: weights read at 16 tokens / read probe | | | {rate / read:.2f} | - | "
                  "- | |")
            for form in self.forms:
                table.row(f"{what}: load and pack / ORT {form}", self.ours["load"],
                          self.theirs[form]["load"])
        if self.size == "tiny":
            ours, theirs = self.ours["decode 16"] / self.nodes, {
                form: self.theirs[form]["decode 16"] / self.node_count(form) for form in self.forms}
            table.row(f"{what}: step per node / 0.5 us", ours, 0.5e-6, 1, 0.4, most=True)
            for form, seconds in theirs.items():
                table.row(f"{what}: step per node / ORT {form}", ours, seconds, 0.5, None,
                          most=True)

    def node_count(self, form):
        import onnx
        model = onnx.load(f"{self.stem}-{form}.onnx", load_external_data=False)
        return len(model.graph.node)


def bench_decoder(args):
    table, results = Table("Decoders", "ORT ms"), {}
    with tempfile.TemporaryDirectory(prefix="kvlift-bench-", dir=args.folder) as folder:
        for size, type_name in DECODER_GATES:
            if size not in args.sizes or type_name not in args.types:
                continue
            for threads in args.threads or ([1, 2] if size == "tiny" else [2]):
                bench = DecoderBench(folder, size, type_name, threads, results)
                for _ in range(args.processes):
                    bench.round()
                for _ in range(PROCESSES_WHEN_CLOSE - args.processes):
                    if bench.forms and bench.close():
                        bench.round()
                bench.report(table)
                results[size, type_name, threads] = bench.theirs
            os.remove(os.path.join(folder, f"{size}-{type_name}.data"))


def kvlift_benches(pattern):
    out, _ = binary(os.path.join(os.environ["BENCHES"], "attention_bench"),
                    f"--benchmark_filter={pattern}", "--benchmark_format=json")
    return json.loads(out)["benchmarks"]


def bench_attention(args):
    """Decode attention of a layer with 32 query heads, 8 key heads, heads of 128."""
    table = Table("Decode attention, 32/8 heads, D = 128", "ORT ms")
    wide = WIDE_VALID * WIDE_FACTOR
    cases = [("attention24", VALID, VALID), ("gqa", VALID, VALID),
             ("attention24", WIDE_VALID, wide)]
    for type_name in ("fp32", "fp16"):
        if type_name not in args.types:
            continue
        size = 4 if type_name == "fp32" else 2
        for threads in args.threads or [1, 2]:
            ours, theirs, read = Best(), Best(), 0
            for _ in range(args.processes):
                pattern = (f"DecodeAttention/(valid:{VALID}/capacity:1|valid:{WIDE_VALID}/"
                           f"capacity:{WIDE_FACTOR})/type:{size % 4 // 2}/threads:{threads}/")
                for run in kvlift_benches(pattern):
                    valid = VALID if f"valid:{VALID}/" in run["name"] else WIDE_VALID
                    ours.add({valid: 2 * 8 * 128 * size * valid / (run["rate"] * 1e9)})
                    read = max(read, run["probe"] * 1e9)
                    Probes.add(threads, read=run["probe"])
                theirs.add(child("ort_attention", type_name, threads, cases, 8))
            for kind, valid, capacity in cases:
                gate, stretch = (CAPACITY_GATE if capacity > valid
                                 else ATTENTION_GATES[kind, type_name, min(threads, 2)])
                of = f"{valid} of {capacity}"
                table.row(f"{type_name}, {threads} thr, {of} / ORT {kind}", ours[valid],
                          theirs[f"{kind} {valid} {capacity}"], gate, stretch)
            table.row(f"{type_name}, {threads} thr, {VALID} of {VALID} / reading it", ours[VALID],
                      2 * 8 * 128 * size * VALID / read, 0.75, 0.9)


def bench_flat(args):
    """What must not depend on the capacity; 1 thread."""
    table = Table("Capacity", "other ms")
    ours, theirs, memcpy = Best(), Best(), {}
    for _ in range(args.processes):
        for run in kvlift_benches("ScatterOneToken|DecodeAttention/valid:1024/.*threads:1/"):
            parts = dict(p.split(":") for p in run["name"].split("/")[1:] if ":" in p)
            key = (run["name"].split("/")[0], parts.get("capacity"), parts["type"])
            if parts.get("moves") == "0":
                key = ("same slot", *key[1:])
            if "ns" in run:
                ours.add({key: run["ns"] * 1e-9})
                memcpy[key] = min(run["of_memcpy"], memcpy.get(key, 1e9))
            else:
                size = 4 if parts["type"] == "0" else 2
                ours.add({key: 2 * 8 * 128 * size * 1024 / (run["rate"] * 1e9)})
        for type_name in ("fp32", "fp16"):
            theirs.add({type_name: child("ort_scatter", type_name, 1024)})
    for code, type_name in (("0", "fp32"), ("1", "fp16")):
        few, many = ("ScatterOneToken", "1024", code), ("ScatterOneToken", "32768", code)
        name = f"TensorScatter, one token, {type_name}"
        table.row(f"{name}, the same slot / ORT", ours["same slot", "1024", code],
                  theirs[type_name], 1.0)
        table.row(f"{name}, cold: capacity 32768 / 1024", ours[many], ours[few], 1.2, 1.05,
                  most=True)
        print(f"| {name}, cold / memcpy of the update | | | {memcpy[few]:.2f} | 3 | 2 | "
              f"{'met' if memcpy[few] <= 3 else 'MISSED'} |", flush=True)
        few, many = ("DecodeAttention", "1", code), ("DecodeAttention", "32", code)
        table.row(f"attention over 1024 keys, {type_name}: capacity 32768 / 1024", ours[many],
                  ours[few], 1.05, 1.02, most=True)


def main():
    def words(text):
        return text.split(",")

    def numbers(text):
        return [int(n) for n in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"attention": bench_attention, "flat": bench_flat, "decoder": bench_decoder}
    parser.add_argument("--only", type=words, default=list(parts), help=", ".join(parts))
    parser.add_argument("--sizes", type=words, default=list(SIZES))
    parser.add_argument("--types", type=words, default=[*llama.TYPES, "int4"])
    parser.add_argument("--threads", type=numbers, help="default: as the gates ask for")
    parser.add_argument("--processes", type=int, default=3, help="of each side, at least")
    parser.add_argument("--folder", help="for the models, 5 GB; default: the temporary folder")
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        name, *arguments = args.child
        print(json.dumps(CHILDREN[name](*arguments)))
        return 0
    if not os.environ.get("KVLIFT") or not os.environ.get("BENCHES"):
        parser.error("set KVLIFT and BENCHES, or run `tools/dev bench ort`")
    start = time.perf_counter()
    for name, part in parts.items():
        if name in args.only:
            part(args)
    Probes.show()
    print(f"{time.perf_counter() - start:.0f} s, load average {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

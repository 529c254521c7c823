"""Verdicts on decoders of real depth, type and size: what is said, how long it takes, at which peak of
memory. The models are Llama-like with random weights (llama.py). Models whose weights are drawn by
verify need no disk.

  verify.py             some depths of a small model, 8 and 80 layers of 1024 with weights drawn, 0.4B
                        parameters in float16 and bfloat16
  verify.py 8b          8B parameters in float16, with weights: 16 GB of disk
  verify.py 8b-int4     the same in MatMulNBits of 4 bits, weights drawn
  verify.py 70b         80 layers of 8192 in float16, weights drawn
"""
import argparse
import os
import sys
import tempfile
import time

import llama

SMALL = {layers: llama.Size(layers, 256, 8, 2, 32, 512, 1024) for layers in (1, 8, 32, 80)}
WIDE = {layers: llama.Size(layers, 1024, 16, 4, 64, 2816, 1024) for layers in (8, 80)}
LARGE = llama.Size(layers=32, hidden=4096, q_heads=32, kv_heads=8, head=128, ffn=14336,
                   vocab=128256)
HUGE = llama.Size(layers=80, hidden=8192, q_heads=64, kv_heads=8, head=128, ffn=28672, vocab=128256)
# By name: the size, the type, whether weights are drawn, and the limits in seconds and GB.
NAMED = {"8b": (LARGE, "fp16", False, 60, 3), "8b-int4": (LARGE, "int4", True, 60, None),
         "70b": (HUGE, "fp16", True, 300, 8)}
QUICK = [(f"{layers} layers", size, "fp32", False, None, None) for layers, size in SMALL.items()]
QUICK += [(f"{layers} of 1024", size, "fp32", True, None, None) for layers, size in WIDE.items()]
QUICK += [(f"0.4B {kind}", llama.MEDIUM, kind, False, 10, None) for kind in ("fp16", "bf16")]


def run(*args):
    """The exit code, seconds and peak of resident memory in GB of a call."""
    begin = time.monotonic()
    devnull = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    child = os.posix_spawn(args[0], args, os.environ, file_actions=devnull)
    _, status, usage = os.wait4(child, 0)
    return (os.waitstatus_to_exitcode(status), time.monotonic() - begin,
            usage.ru_maxrss / 1024 ** 2)


def row(name, size, kind, drawn, seconds_limit, memory_limit):
    """Prints the figures of one model; whether it is equal and within its limits."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = (os.path.join(folder, f) for f in ("model-concat.onnx", "out.onnx"))
        data = os.path.join(folder, "model.data")
        if drawn:
            open(data, "wb").close()
        llama.build(source, size, kind, "padded")
        if drawn:
            os.remove(data)
        tool = os.environ["KVLIFT"]
        weights = ["--weights", "random"] if drawn else []
        converted, convert_seconds, _ = run(tool, "convert", source, "-o", out)
        if converted != 0:
            print(f"{name:12} is not converted: exit {converted}")
            return False
        code, seconds, peak = run(tool, "verify", source, out, *weights)
    limits = ([f"limit {seconds_limit} s"] if seconds_limit else []) + (
        [f"limit {memory_limit} GB"] if memory_limit else [])
    within = (code == 0 and seconds <= (seconds_limit or seconds)
              and peak <= (memory_limit or peak))
    print(f"{name:12} {'equal' if code == 0 else f'exit {code}':8} convert {convert_seconds:6.2f} s "
          f"verify {seconds:7.2f} s {peak:6.2f} GB  {', '.join(limits)}"
          f"{'' if within else '  MISSED'}", flush=True)
    return within


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", choices=[[], *NAMED])
    args = parser.parse_args()
    rows = [(name, *NAMED[name]) for name in args.models] or QUICK
    sys.exit(0 if all([row(*each) for each in rows]) else 1)


if __name__ == "__main__":
    main()

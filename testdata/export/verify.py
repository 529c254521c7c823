"""Re-run every step of every fixture from its files and compare: python verify.py"""
import glob, json, os, sys
import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

OUT = os.environ.get("KVFX_OUT", os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "models"))


def load(p):
    t = onnx.TensorProto()
    t.ParseFromString(open(p, "rb").read())
    return t.name, numpy_helper.to_array(t)


bad = n = 0
for d in sorted(glob.glob(os.path.join(OUT, "*", ""))):
    m = json.load(open(os.path.join(d, "meta.json")))
    steps = sorted(glob.glob(os.path.join(d, "steps", "*")))
    if not steps:
        print("no steps:", m["name"], "-", m["why"])
        continue
    so = ort.SessionOptions()
    so.intra_op_num_threads, so.log_severity_level = 1, 4
    s = ort.InferenceSession(os.path.join(d, "model.onnx"), so, providers=["CPUExecutionProvider"])
    worst = 0.0
    for st in steps:
        f = dict(load(p) for p in glob.glob(os.path.join(st, "input_*.pb")))
        ref = dict(load(p) for p in glob.glob(os.path.join(st, "output_*.pb")))
        got = dict(zip([o.name for o in s.get_outputs()], s.run(None, f)))
        assert set(got) == set(ref), m["name"]
        for k in ref:
            assert got[k].shape == ref[k].shape, (m["name"], k)
            if ref[k].size:
                worst = max(worst, float(np.abs(got[k].astype(np.float64) - ref[k].astype(np.float64)).max()))
    n += 1
    tol = 2e-2 if "fp16" in m["features"] else 1e-3
    big = os.path.getsize(os.path.join(d, "model.onnx")) > 1.5e6
    if worst > tol or big:
        bad += 1
        print("BAD", m["name"], worst, "big" if big else "")
print(n, "fixtures verified,", bad, "bad")

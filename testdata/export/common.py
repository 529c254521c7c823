"""Cleaning, driving and writing of the fixtures.  Needs numpy, onnx and onnxruntime only."""
import json, os, re, shutil
import numpy as np
import onnx
from onnx import numpy_helper, TensorProto

STEPS = (5, 1, 1, 3, 1)            # prefill, single, single, chunk, single
BAD = re.compile(rb"(/home/|/roo[t]/|/tmp/|/usr/lib|site-packages|\.py\b|[A-Za-z]:\\\\)")


# ------------------------------------------------------------------ cleaning
def clean(model):
    """Remove doc strings, stack traces and everything else that names the exporting machine."""
    def graph(g):
        g.doc_string = ""
        del g.metadata_props[:]
        for seq in (g.input, g.output, g.value_info):
            for v in seq:
                v.doc_string = ""
                del v.metadata_props[:]
        for t in g.initializer:
            t.doc_string = ""
            del t.metadata_props[:]
        for n in g.node:
            node(n)

    def node(n):
        n.doc_string = ""
        del n.metadata_props[:]
        for a in n.attribute:
            a.doc_string = ""
            if a.HasField("g"):
                graph(a.g)
            for g in a.graphs:
                graph(g)

    model.doc_string = ""
    del model.metadata_props[:]
    graph(model.graph)
    for f in model.functions:
        f.doc_string = ""
        del f.metadata_props[:]
        for v in f.value_info:
            v.doc_string = ""
            del v.metadata_props[:]
        for n in f.node:
            node(n)
    return model


def leaks(path):
    data = open(path, "rb").read()
    return sorted({m.group(0).decode("latin1") for m in BAD.finditer(data)})


def count_nodes(g):
    n = 0
    for x in g.node:
        n += 1
        for a in x.attribute:
            if a.HasField("g"):
                n += count_nodes(a.g)
            for h in a.graphs:
                n += count_nodes(h)
    return n


def np_dtype(elem):
    return onnx.helper.tensor_dtype_to_np_dtype(elem)


def shape_of(vi):
    if not vi.type.tensor_type.HasField("shape"):
        return None
    return [d.dim_value if d.HasField("dim_value") else (d.dim_param or "?") for d in vi.type.tensor_type.shape.dim]


def mask_label(model, declared):
    """Which builder of the catalogue made the causal mask of a transformers export."""
    ops = set()

    def walk(g):
        for n in g.node:
            ops.add(n.op_type)
            for a in n.attribute:
                if a.HasField("g"):
                    walk(a.g)
    walk(model.graph)
    if not set(declared) <= {"M1", "M2", "M3", "M4"}:
        return declared
    out = ["M3"] if "LessOrEqual" in ops else ["M2"] if "Greater" in ops else ["M1"] if "Less" in ops else list(declared)
    return out + (["M4"] if "IsNaN" in ops and "M4" not in out else [])


# ------------------------------------------------------------------ running
class Runner:
    def __init__(self, path):
        self.kind = "onnxruntime"
        model = onnx.load(path)
        self.model = model
        inits = {i.name for i in model.graph.initializer}
        self.inputs = [i for i in model.graph.input if i.name not in inits]
        self.outputs = list(model.graph.output)
        try:
            import onnxruntime as ort
            so = ort.SessionOptions()
            so.intra_op_num_threads = 1
            so.inter_op_num_threads = 1
            so.log_severity_level = 4
            so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
            self.s = ort.InferenceSession(path, so, providers=["CPUExecutionProvider"])
            self.version = "onnxruntime " + ort.__version__
        except Exception as e:
            self.why = str(e).split("\n")[0][:300]
            from onnx.reference import ReferenceEvaluator
            self.kind = "reference"
            self.s = ReferenceEvaluator(model)
            self.version = "onnx.reference " + onnx.__version__

    def __call__(self, feeds):
        return self.s.run([o.name for o in self.outputs], feeds)


class _Unrun:
    """A model that no runtime accepts: metadata only, no steps."""
    kind, version = "onnxruntime", "none (the model is invalid by design)"

    def __init__(self, model):
        self.inputs, self.outputs = list(model.graph.input), list(model.graph.output)


def feed(kind, spec, P, S, T, M, B, dtype, rng, ids, consts):
    if kind == "ids":
        a = ids
    elif kind.startswith("pos_bs"):
        a = np.tile(np.arange(P, T), (B, 1)) + int(kind[6:] or 0)
    elif kind == "pos_3bs":
        a = np.tile(np.arange(P, T), (3, B, 1))
    elif kind == "pos_s":
        a = np.arange(P, T)
    elif kind == "pos_1s":
        a = np.arange(P, T)[None]
    elif kind == "start_b":
        a = np.full((B,), P)
    elif kind == "start_b_ragged":      # row r lags two tokens behind row r-1 and rewrites its own last slots
        a = np.maximum(P - 2 * np.arange(B), 0)
    elif kind == "start_b1_ragged":
        a = np.maximum(P - 2 * np.arange(B), 0)[:, None]
    elif kind == "pos_rag":
        a = np.maximum(P - 2 * np.arange(B), 0)[:, None] + np.arange(S)
    elif kind == "start_b1":
        a = np.full((B, 1), P)
    elif kind == "start":
        a = np.array(P)
    elif kind == "start1":
        a = np.array([P])
    elif kind == "total":
        a = np.array(T)
    elif kind == "total_b":
        a = np.full((B,), T)
    elif kind == "mask_bt":
        a = np.ones((B, T))
    elif kind == "mask_bm":
        a = np.tile(np.arange(M) < T, (B, 1))
    elif kind == "mask_b1sm":        # causal bool / float(0,-inf) over the capacity
        m = np.arange(M)[None, :] <= np.arange(P, T)[:, None]
        m = np.tile(m, (B, 1, 1, 1))
        a = m if dtype == np.bool_ else np.where(m, 0.0, np.finfo(np.float32).min)
    elif kind == "mask_b1st":
        m = np.arange(T)[None, :] <= np.arange(P, T)[:, None]
        m = np.tile(m, (B, 1, 1, 1))
        a = m if dtype == np.bool_ else np.where(m, 0.0, np.finfo(np.float32).min)
    elif kind == "mask_fifo":        # [B,1,S,M], valid slots at the end of the buffer (S = 1)
        a = np.tile(np.arange(M) >= M - T, (B, 1, 1, 1))
        a = a if dtype == np.bool_ else np.where(a, 0.0, np.finfo(np.float32).min)
    elif kind == "mask_window31":    # C12: M past slots then the new token in the last column
        a = np.tile(np.concatenate([np.arange(M) < P, [True]]), (B, 1, 1, 1))
        a = np.where(a, 0.0, -100.0)
    elif kind == "flag_past":
        a = np.array([P > 0])
    elif kind == "beam":
        a = np.arange(B)
    elif kind.startswith("const:"):
        a = consts[kind[6:]]
    else:
        raise ValueError(kind)
    return np.ascontiguousarray(np.asarray(a).astype(dtype))


def resolve(shape, B, P, M):
    return [{"B": B, "P": P, "M": M}.get(d, d) for d in shape]


def drive(run, spec, consts, seq_ids, steps, perturb=None):
    """Thread a decode run through the model.  Returns [(feeds, outputs)] per step."""
    B, M = spec["batch"], spec.get("capacity")
    info = {i.name: np_dtype(i.type.tensor_type.elem_type) for i in run.inputs}
    names = [o.name for o in run.outputs]
    caches = {c["input"]: c for c in spec["caches"]}
    state = {}
    for c in spec["caches"]:
        state[c["input"]] = np.zeros(resolve(c["init"], B, 0, M), dtype=info[c["input"]])
    rng = np.random.default_rng(5)
    out, P = [], 0
    for i, S in enumerate(steps):
        T = P + S
        ids = seq_ids[:, P:T]
        feeds = {}
        for n, dt in info.items():
            if n in state:
                feeds[n] = state[n]
            else:
                feeds[n] = feed(spec["feeds"][n], spec, P, S, T, M, B, dt, rng, ids, consts)
        if perturb is not None:
            perturb(i, feeds, P)
        res = run(feeds)
        out.append((feeds, res))
        got = dict(zip(names, res))
        for n, c in caches.items():
            if not c.get("output"):
                continue
            if c.get("update", "full") == "full":
                state[n] = got[c["output"]]
            elif c["update"] == "keep_first":      # cross cache: produced by the first call, then only read
                if i == 0:
                    state[n] = got[c["output"]]
            elif c["update"] == "append":          # outputs only the new slice; host appends
                state[n] = np.concatenate([state[n], got[c["output"]]], axis=c["axis"])
            elif c["update"] == "write":           # outputs only the new slice; host writes at P
                s = state[n].copy()
                idx = [slice(None)] * s.ndim
                idx[c["axis"]] = slice(P, T)
                s[tuple(idx)] = got[c["output"]]
                state[n] = s
        P = T
    return out


def sensitivity(run, spec, consts, last):
    """Replace one cached position of one cache by its neighbour in the last step: how far do the logits move?"""
    feeds, ref = last
    li = [o.name for o in run.outputs].index(spec["logits"])
    P = sum(spec["steps"][:-1])
    per = {}
    for c in spec["caches"]:
        ax = c["axis"]
        worst = None
        n = min(P, feeds[c["input"]].shape[ax])
        w = (spec.get("windows") or {}).get(str(c["layer"]))        # slots outside the window of the first new query do not count
        size = feeds[c["input"]].shape[ax]
        slots = range(max(0, P % size - 5), P % size) if spec.get("sens_ring") else range(size - P, size) if spec.get("valid_at_end") else range(max(0, P - w + 1) if w else 0, n)
        n = slots.stop
        for t in slots:
            a = feeds[c["input"]].copy()
            src = t + 1 if t + 1 < n else t - 1
            idx = [slice(None)] * a.ndim; idx[ax] = t
            jdx = [slice(None)] * a.ndim; jdx[ax] = src
            a[tuple(idx)] = feeds[c["input"]][tuple(jdx)]
            f = dict(feeds); f[c["input"]] = a
            d = float(np.abs(run(f)[li].astype(np.float64) - ref[li].astype(np.float64)).max())
            worst = (d, t) if worst is None or d < worst[0] else worst
        per[c["input"]] = worst
    return per


def finish(raw, spec, outdir):
    """raw: path of the exporter's file; spec: dict; writes model.onnx, meta.json, steps/."""
    consts = {}
    cpath = os.path.join(os.path.dirname(raw), "consts.npz")
    if os.path.exists(cpath):
        consts = dict(np.load(cpath))
    shutil.rmtree(outdir, ignore_errors=True)
    os.makedirs(outdir)
    model = onnx.load(raw)
    clean(model)
    path = os.path.join(outdir, "model.onnx")
    onnx.save(model, path)
    bad = leaks(path)
    check = "ok"
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as e:
        check = str(e).split("\n")[0][:200]
    run = Runner(path) if spec.get("run", True) else _Unrun(model)
    vocab = spec.get("vocab", 96)
    spec.setdefault("batch", 2)
    steps = list(spec.setdefault("steps", list(STEPS)))
    total = sum(steps)
    seq_ids = np.stack([np.random.default_rng(11 + b).permutation(np.arange(1, vocab - 1))[:total] for b in range(spec["batch"])])   # no repeated token in a row
    rep = {"leaks": bad, "check": check, "runner": run.version}
    if run.kind != "onnxruntime":
        rep["ort_error"] = run.why
    res = drive(run, spec, consts, seq_ids, steps) if spec.get("run", True) else []
    for i, (feeds, outs) in enumerate(res):
        d = os.path.join(outdir, "steps", "%02d" % i)
        os.makedirs(d)
        for k, vi in enumerate(run.inputs):
            t = numpy_helper.from_array(np.asarray(feeds[vi.name], order="C"), vi.name)
            open(os.path.join(d, "input_%d.pb" % k), "wb").write(t.SerializeToString())
        for k, vi in enumerate(run.outputs):
            t = numpy_helper.from_array(np.asarray(outs[k], order="C"), vi.name)
            open(os.path.join(d, "output_%d.pb" % k), "wb").write(t.SerializeToString())
    li = [o.name for o in run.outputs].index(spec["logits"])
    logits = [r[1][li] for r in res] or [np.zeros(1)]
    rep["finite"] = bool(all(np.isfinite(l).all() for l in logits))
    rep["logit_std"] = round(float(np.std(logits[-1])), 3)
    if res and spec["caches"] and spec.get("sens", True):
        try:
            per = sensitivity(run, spec, consts, res[-1])
            rep["sensitivity_min"] = round(min(v[0] for v in per.values()), 4)
            rep["sensitivity"] = {k: [round(v[0], 4), v[1]] for k, v in per.items()}
        except Exception as e:
            rep["sensitivity_error"] = str(e)[:200]
    ragged = any("rag" in k for k in spec.get("feeds", {}).values())
    if res and len(steps) > 1 and spec.get("one_shot", True) and not ragged:
        try:
            whole = drive(run, spec, consts, seq_ids, [total])[0][1][li]
            cat = np.concatenate(logits, axis=1) if logits[0].ndim == 3 and logits[0].shape[1] == steps[0] else None
            if cat is not None:
                rep["one_shot_diff"] = float(np.abs(cat - whole).max())
            else:
                rep["one_shot_diff"] = float(np.abs(logits[-1][:, -1] - whole[:, -1]).max())
        except Exception as e:
            rep["one_shot_error"] = str(e).split("\n")[0][:160]
    opset = {o.domain or "ai.onnx": o.version for o in model.opset_import}
    nodes = count_nodes(model.graph) + sum(len(f.node) for f in model.functions)
    size = sum(os.path.getsize(os.path.join(r, f)) for r, _, fs in os.walk(outdir) for f in fs)
    feeds_map = spec.get("feeds", {})
    meta = {
        "name": spec["name"], "family": spec["family"], "exporter": spec["exporter"],
        "opset": opset, "ir_version": model.ir_version, "nodes": nodes,
        "layers": spec.get("layers"), "kv_heads": spec.get("kv_heads"), "q_heads": spec.get("q_heads"),
        "head_dim": spec.get("head_dim"), "vocab": vocab, "batch": spec["batch"],
        "growing": spec.get("growing"), "capacity": spec.get("capacity"),
        "patterns": spec.get("patterns", []), "mask": spec.get("mask", []) if spec["family"].startswith("hand-written") else mask_label(model, spec.get("mask", [])),
        "caches": [{k: c[k] for k in ("input", "output", "layer", "role", "axis", "update", "init") if k in c} for c in spec["caches"]],
        "inputs": [{"name": i.name, "dtype": str(np_dtype(i.type.tensor_type.elem_type)), "shape": shape_of(i)} for i in run.inputs],
        "outputs": [{"name": o.name, "dtype": str(np_dtype(o.type.tensor_type.elem_type)), "shape": shape_of(o)} for o in run.outputs],
        "drive": dict({"tokens": None, "position": None, "mask": None, "notes": ""}, **spec.get("drive", {})),
        "feeds": feeds_map, "steps": steps if res else [], "logits": spec["logits"],
        "expect": spec["expect"], "why": spec["why"], "features": spec.get("features", []),
        "checks": rep,
    }
    free = [k for k in feeds_map.values() if k in ("pos_s", "pos_bs", "pos_rag")]
    if free and spec.get("capacity") and spec["expect"] != "refuse" and (spec["family"].startswith("hand-written") or "4.46" in spec["exporter"]) \
            and any(p[0] == "S" for p in spec["patterns"]) and "needs-contiguity-contract" not in meta["features"]:
        meta["features"] = meta["features"] + ["needs-contiguity-contract"]     # a free position vector: contiguous only by contract when S > 1
    d = meta["drive"]
    for n, k in feeds_map.items():
        if k == "ids":
            d["tokens"] = n
        elif k.startswith(("pos_", "start")) and d["position"] is None:
            d["position"] = {"input": n, "meaning": {
                "pos_s": "[S] absolute positions P..P+S-1, shared by the batch", "pos_3bs": "[3,B,S] absolute positions",
                "pos_1s": "[1,S] absolute positions P..P+S-1", "start": "scalar start slot P", "start1": "[1] start slot P",
                "start_b": "[B] start slot per batch row", "start_b1": "[B,1] position per batch row",
                "start_b_ragged": "[B] start slot per row, row r at max(P-2r, 0)", "start_b1_ragged": "[B,1] position per row, row r at max(P-2r, 0)",
                "pos_rag": "[B,S] positions, row r starts at max(P-2r, 0)"}.get(
                k, "[B,S] absolute positions P..P+S-1" + (" (%s added)" % k[6:] if k[6:] else ""))}
        elif k.startswith("mask") and d["mask"] is None:
            d["mask"] = {"input": n, "meaning": {"mask_bt": "[B,T] ones, T=P+S", "mask_bm": "[B,M], 1 for slots < P+S else 0",
                         "mask_b1sm": "[B,1,S,M] causal by absolute slot", "mask_b1st": "[B,1,S,T] causal", "mask_fifo": "[B,1,1,M], last P+S slots valid",
                         "mask_window31": "[B,1,1,M+1] float, first P slots and the last column open"}[k]}
    json.dump(meta, open(os.path.join(outdir, "meta.json"), "w"), indent=1)
    rep.update(nodes=nodes, size=size, model_size=os.path.getsize(path), opset=opset)
    return rep

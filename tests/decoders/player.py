"""Runs an original and its conversion in ONNX Runtime, caches threaded, and compares them."""

import numpy as np
import onnx
import onnxruntime as ort

TOLERANCE = {"float32": 2e-4, "float16": 2e-2, "uint8": 0, "int64": 0}
CAPACITY = 20
_states = ort.capi.onnxruntime_pybind11_state
REFUSALS = (_states.Fail, _states.InvalidArgument, _states.RuntimeException)


class Difference(Exception):
    """The two models compute different values."""


def session(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


class Side:
    """One model: its session, and the types of its inputs."""

    def __init__(self, path):
        self.session = session(path)
        self.outputs = [o.name for o in self.session.get_outputs()]
        graph = onnx.load(path).graph
        self.types = {
            v.name: np.dtype(onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type))
            for v in graph.input
        }

    def run(self, feeds):
        return dict(zip(self.outputs, self.session.run(None, feeds)))


def host_value(kind, dtype, past, new, capacity, batch, rng, vocab, hidden, consts, name):
    """What a host feeds for one input at a step with `past` tokens and `new` new ones."""
    total = past + new
    place = np.arange(past, total)

    def additive(width, seen):
        keep = np.broadcast_to(seen, (batch, 1, seen.shape[-2], width))
        return (
            keep.copy()
            if dtype.kind == "b"
            else np.where(keep, 0, np.finfo(dtype).min).astype(dtype)
        )

    def causal(width):
        return np.arange(width)[None] <= place[:, None]

    if kind.startswith("const:"):
        return consts[name]
    table = {
        "ids": lambda: rng.integers(0, vocab, (batch, new)),
        "embeds": lambda: rng.standard_normal((batch, new, hidden)),
        "pos_bs": lambda: np.tile(place, (batch, 1)),
        "pos_3bs": lambda: np.tile(place, (3, batch, 1)),
        "pos_s": lambda: place,
        "pos_1s": lambda: place[None],
        "start": lambda: np.array(past),
        "start1": lambda: np.array([past]),
        "start_b": lambda: np.full(batch, past),
        "start_b1": lambda: np.full((batch, 1), past),
        "total": lambda: np.array(total),
        "beam": lambda: np.arange(batch),
        "flag_past": lambda: np.array([past > 0]),
        "mask_bt": lambda: np.ones((batch, total)),
        # The sum of a row is the number of its tokens, so that a zero is no hole.
        "count_bt": lambda: np.ones((batch, total)),
        "mask_bm": lambda: np.tile(np.arange(capacity) < total, (batch, 1)),
        "mask_b1st": lambda: additive(total, causal(total)),
        "mask_b1sm": lambda: additive(capacity, causal(capacity)),
        "mask_fifo": lambda: additive(capacity, (np.arange(capacity) >= capacity - total)[None]),
    }
    return np.asarray(table[kind]()).astype(dtype)


class Freedom:
    """Which inputs a host may feed otherwise than the model's author had in mind.

    All that the manifest does not bind: masks with holes, positions with gaps. A token stays
    visible to itself, for a query that sees no key is compared with nothing.
    """

    def __init__(self, manifest, host, seed):
        self.host, self.rng = host, np.random.default_rng(seed)
        same = {
            e.get("source", e["name"])
            for e in manifest["inputs"]
            if e["as"] in ("same", "renamed", "pad_to_capacity") and not e.get("requires")
        }
        said = [p for p in manifest["preconditions"] if p["code"] != "KV303"]
        self.free = {
            name
            for name in same
            if not any(name == p.get("subject") or name in p["text"] for p in said)
        }

    def varied(self, feeds, past):
        """The same feeds with holes and gaps where nothing forbids them."""
        changed = dict(feeds)
        jump = int(self.rng.integers(0, 3))
        for name, kind in self.host["feeds"].items():
            if name not in self.free:
                continue
            if kind == "mask_bt":
                holes = self.rng.random(feeds[name].shape) < 0.3
                holes[:, past:] = False
                changed[name] = np.where(holes, 0, feeds[name]).astype(feeds[name].dtype)
            elif kind == "pos_bs":
                changed[name] = (feeds[name] + jump).astype(feeds[name].dtype)
        return changed


def run_freely(model, freedom, feeds, past):
    """What a model gives for varied feeds, or for plain ones where it refuses those."""
    varied = freedom.varied(feeds, past)
    try:
        return varied, model.run(varied)
    except REFUSALS:
        return feeds, model.run(feeds)


def first_past(cache, batch, capacity, dtype):
    sizes = {"B": batch, "P": 0, "M": capacity}
    return np.zeros([sizes[d] if isinstance(d, str) else d for d in cache["init"]], dtype)


def thread(cache, fed, got, past, new):
    axis = cache["axis"]
    if cache.get("update") == "append":
        return np.concatenate([fed, got], axis)
    if cache.get("update") == "write":
        whole = fed.copy()
        whole[(slice(None),) * axis + (slice(past, past + new),)] = got
        return whole
    return got


def near(what, want, got):
    if want.shape != got.shape or want.dtype != got.dtype:
        raise Difference(f"{what}: {got.dtype}{got.shape} instead of {want.dtype}{want.shape}")
    if not want.size:
        return
    if want.dtype.kind != "f":
        if not np.array_equal(want, got):
            raise Difference(f"{what}: values differ")
        return
    a, b = want.astype(np.float64), got.astype(np.float64)
    if not np.isfinite(a).all():
        raise ValueError(f"{what}: the original is not finite")
    delta = np.abs(a - b).max()
    if not delta <= TOLERANCE[str(want.dtype)] * max(1.0, np.abs(a).max()):
        raise Difference(f"{what}: off by {delta:.3g}")


class Converted(Side):
    """The converted model, driven by its manifest."""

    def __init__(self, path, manifest, host):
        super().__init__(path)
        self.manifest, self.host = manifest, host
        self.caches = {c["id"]: c for c in manifest["caches"]}
        self.capacity = manifest["capacity"]["value"] or host["capacity"] or CAPACITY
        self.buffers, self.rng = {}, np.random.default_rng(3)

    def like_target(self, value, cache):
        source = cache["source"]
        index = [slice(None)] * value.ndim
        for fixed in source["select"]:
            index[fixed["axis"]] = fixed["index"]
        return value[tuple(index)].transpose([source["layout"].index(x) for x in cache["layout"]])

    def buffer(self, cache, past):
        """Rows of the past first; behind them noise, where the original has nothing."""
        key, axis = cache["id"], cache["layout"].index("S")
        if key not in self.buffers:
            value = self.like_target(past, cache)
            if self.host["growing"]:
                shape = list(value.shape)
                shape[axis] = self.capacity
                fresh = (
                    self.rng.standard_normal(shape) if value.dtype.kind == "f" else np.zeros(shape)
                )
                self.buffers[key] = fresh.astype(value.dtype)
            else:
                self.buffers[key] = np.ascontiguousarray(value)
        return self.buffers[key]

    def feeds(self, original, past, new, batch):
        made = {}
        for entry in self.manifest["inputs"]:
            name, source = entry["name"], entry.get("source", entry["name"])
            if entry["as"] in ("same", "renamed"):
                made[name] = original[source]
            elif entry["as"] == "control":
                value = past + (new if entry["value"] == "T" else 0)
                shape = [batch if d == "B" else d for d in entry["shape"]]
                made[name] = np.full(shape, value, self.types[name])
            elif entry["as"] == "pad_to_capacity":
                value, axis = original[source], entry["axis"]
                widths = [(0, 0)] * value.ndim
                widths[axis] = (0, self.capacity - value.shape[axis])
                made[name] = np.pad(value, widths, constant_values=entry["fill"])
            else:
                cache = self.caches[entry["id"]]
                made[name] = self.buffer(cache, original[cache["source"]["input"]])
        return made

    def compare(self, where, state, out, mine, past, new):
        for entry in self.manifest["outputs"]:
            if entry["as"] != "cache":
                near(
                    f"{where}: {entry['name']}",
                    out[entry.get("source", entry["name"])],
                    mine[entry["name"]],
                )
        for key, cache in self.caches.items():
            axis, total = cache["layout"].index("S"), past + new
            want = self.like_target(state[cache["source"]["input"]], cache)
            rows = want.shape[axis] if cache["source"]["growing"] else total
            got, before = mine[cache["output"]], self.buffers[key]
            first = total - rows
            near(
                f"{where}: cache {key}",
                np.take(want, range(rows), axis),
                np.take(got, range(first, total), axis),
            )
            rest = [i for i in range(got.shape[axis]) if not past <= i < total]
            if np.take(before, rest, axis).tobytes() != np.take(got, rest, axis).tobytes():
                raise Difference(f"{where}: cache {key}: other slots changed")
            self.buffers[key] = got


def compare(original, converted, manifest, host, vocab, hidden, seed=11):
    """Prefill, decode, chunk, decode; raises Difference. Returns the number of compared steps."""
    a, b = Side(original), Converted(converted, manifest, host)
    freedom = Freedom(manifest, host, seed + 1)
    rng, batch, past = np.random.default_rng(seed), host["batch"], 0
    state = {
        c["input"]: first_past(c, batch, host["capacity"], a.types[c["input"]])
        for c in host["caches"]
    }
    for number, new in enumerate(host["steps"]):
        feeds = {
            n: host_value(
                k,
                a.types[n],
                past,
                new,
                host["capacity"],
                batch,
                rng,
                vocab,
                hidden,
                host["consts"],
                n,
            )
            for n, k in host["feeds"].items()
        } | state
        feeds, out = run_freely(a, freedom, feeds, past)
        after = {
            c["input"]: thread(c, state[c["input"]], out[c["output"]], past, new)
            for c in host["caches"]
        }
        mine = b.run(b.feeds(feeds, past, new, batch))
        b.compare(f"step {number}", after, out, mine, past, new)
        state, past = after, past + new
    return len(host["steps"])

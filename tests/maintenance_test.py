"""emit-maintenance: the companion model in ONNX Runtime and in kvlift's executor against numpy, and
real models that go on decoding on the caches it moved.

Environment: KVLIFT, the tool; KVLIFT_ROOT, the repository.
"""
import json
import os
import tempfile
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper

from support.cases import session
from support.recorded import MODELS
from support.schemas import check_json
from support.tool import done, tool

CAPACITY = 24
# Each has positions as an input, and a mask that the host gives.
EVICTING = ("llama_optimum", "qwen2_optimum", "gpt2_optimum", "llama_dynamic_dynamo")
REFUSED = {"llama_genai_gqa": "KV231", "whisper_decoder_with_past_optimum": "KV231",
           "llama_static_ts": "KV231", "toy_scatter_ts": "KV231", "toy_transposed_key_ts": "KV231",
           "llama_optimum_merged": "KV231", "gemma2_optimum": "KV232", "bloom_optimum": "KV232",
           "toy_fifo_shift_ts": "KV233", "gpt_oss_optimum": "KV234"}


def manifest_of(path):
    with open(path.removesuffix(".onnx") + ".kv.json", encoding="utf-8") as file:
        return json.load(file)


def run_in_kvlift(path, feeds, *flags):
    with tempfile.TemporaryDirectory() as folder:
        for name, value in feeds.items():
            np.save(os.path.join(folder, name + ".npy"), value)
        out = os.path.join(folder, "out")
        done("run", path, "--inputs", folder, "--outputs", out, *flags)
        outputs = {}
        for entry in sorted(os.listdir(out)):
            tensor = onnx.TensorProto()
            with open(os.path.join(out, entry), "rb") as file:
                tensor.ParseFromString(file.read())
            outputs[tensor.name] = onnx.numpy_helper.to_array(tensor)
        return outputs


def moved(cache, layout, axis, keep, beam):
    """What the companion's text says, row by row."""
    batch = len(keep) if keep is not None else len(beam)
    per_sequence = cache.shape[0] // batch
    out = cache.copy()
    for b in range(batch):
        source = b if beam is None else beam[b]
        for r in range(per_sequence):
            row, old = b * per_sequence + r, cache[source * per_sequence + r]
            if keep is None:
                out[row] = old
                continue
            for k, slot in enumerate(keep[b]):
                index = (slice(None),) * (axis - 1)
                out[row][index + (k,)] = old[index + (slot,)]
    return out


def cache_entry(role, layout, axis, dtype):
    return {"id": f"0.{role}", "layer": 0, "role": role, "input": f"past_{role}",
            "output": f"present_{role}", "dtype": dtype, "layout": layout, "axis": axis,
            "alias": "safe",
            "source": {"input": f"past_{role}", "output": f"present_{role}", "kind": "concat",
                       "layout": "BNSD", "axis": axis, "growing": True, "select": []}}


def layer(folder, layout, axis, shape, dtype):
    """An attention over one pair of caches, and its manifest by hand."""
    name = np.dtype(helper.tensor_dtype_to_np_dtype(dtype)).name
    entries = [cache_entry(role, layout, axis, name) for role in ("key", "value")]
    folded = layout == "BS(ND)"
    rows = ["S" if k == axis else d for k, d in enumerate(shape)]
    query = [shape[0], "S", 12] if folded else [shape[0], 3, "S", 4]
    value = helper.make_tensor_value_info
    inputs = [value("new_key", dtype, rows), value("new_value", dtype, rows),
              value("q", dtype, query), value("write_indices", TensorProto.INT64, [shape[0]])]
    inputs += [value(c["input"], dtype, shape) for c in entries]
    nodes = [helper.make_node("TensorScatter", [c["input"], f"new_{c['role']}", "write_indices"],
                              [c["output"]], axis=axis) for c in entries]
    nodes += [helper.make_node("Shape", ["new_key"], ["tokens"], start=axis, end=axis + 1),
              helper.make_node("Add", ["write_indices", "tokens"], ["nonpad"])]
    order = {"BNDS": [0, 1, 3, 2], "BSND": [0, 2, 1, 3]}.get(layout)
    read = [c["output"] for c in entries]
    if order:
        nodes += [helper.make_node("Transpose", [name], [f"{name}_t"], perm=order) for name in read]
        read = [f"{name}_t" for name in read]
    heads = {"q_num_heads": 3, "kv_num_heads": 3} if folded else {}
    if layout != "(BN)SD":
        nodes.append(helper.make_node("Attention", ["q", *read, "", "", "", "nonpad"], ["y"],
                                      is_causal=1, **heads))
    outputs = [value(c["output"], dtype, shape) for c in entries]
    if layout != "(BN)SD":
        outputs.append(value("y", dtype, query))
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), ir_version=12,
                              opset_imports=[helper.make_opsetid("", 24)])
    path = os.path.join(folder, "layer.onnx")
    onnx.save(model, path)
    manifest = {"schema": "kvlift/manifest/1", "semantics": "onnx-1.23-errata",
                "source_sha256": "", "target": "spec",
                "capacity": {"dim": "M", "value": None}, "mode": "linear", "read": "full",
                "uniform": False, "caches": entries,
                "inputs": [{"name": n, "as": "same"} for n in ("new_key", "new_value", "q")] +
                          [{"name": c["input"], "as": "cache", "id": c["id"]} for c in entries] +
                          [{"name": "write_indices", "as": "control", "value": "P",
                            "dtype": "int64", "shape": ["B"]}],
                "outputs": [{"name": "y", "as": "same"}] +
                           [{"name": c["output"], "as": "cache", "id": c["id"]} for c in entries],
                "dropped": [], "preconditions": []}
    with open(path.removesuffix(".onnx") + ".kv.json", "w", encoding="utf-8") as file:
        json.dump(manifest, file)
    return path


class Original:
    """A decoder whose caches grow, in ONNX Runtime."""

    def __init__(self, name, caches, batch):
        self.session = session(os.path.join(MODELS, name, "model.onnx"))
        self.caches = caches
        self.past = {}
        for value in self.session.get_inputs():
            cache = next((c for c in caches if c["source"]["input"] == value.name), None)
            if cache is not None:
                shape = [d if isinstance(d, int) else 0 for d in value.shape]
                shape[0], shape[cache["source"]["axis"]] = batch, 0
                self.past[value.name] = np.zeros(shape, np.float32)

    def step(self, feeds):
        names = [o.name for o in self.session.get_outputs()]
        outputs = dict(zip(names, self.session.run(None, feeds | self.past)))
        for cache in self.caches:
            self.past[cache["source"]["input"]] = outputs[cache["source"]["output"]]
        return outputs["logits"]

    def keep(self, indices, beam):
        for cache in self.caches:
            name, axis = cache["source"]["input"], cache["source"]["axis"]
            rows = [np.take(self.past[name][s], slots, axis=axis - 1)
                    for s, slots in zip(beam, indices)]
            self.past[name] = np.stack(rows)


class Converted:
    """The same after conversion, and its companion."""

    def __init__(self, path, moves, caches, batch, in_kvlift):
        self.session, self.moves, self.moves_path = session(path), session(moves), moves
        self.caches, self.in_kvlift = caches, in_kvlift
        self.random = np.random.default_rng(3)
        self.buffers = {}
        for value in self.session.get_inputs():
            cache = next((c for c in caches if c["input"] == value.name), None)
            if cache is not None:
                shape = [d if isinstance(d, int) else batch for d in value.shape]
                shape[cache["axis"]] = CAPACITY
                self.buffers[value.name] = self.random.standard_normal(shape).astype(np.float32)

    def step(self, feeds, length):
        names = [o.name for o in self.session.get_outputs()]
        feeds = feeds | self.buffers | {"write_indices": length}
        outputs = dict(zip(names, self.session.run(None, feeds)))
        for cache in self.caches:
            self.buffers[cache["input"]] = outputs[cache["output"]]
        return outputs["logits"]

    def move(self, **indices):
        feeds = self.buffers | indices
        names = [o.name for o in self.moves.get_outputs()]
        outputs = dict(zip(names, self.moves.run(None, feeds)))
        if self.in_kvlift:
            for mode in ("required", "guard", "off"):
                mine = run_in_kvlift(self.moves_path, feeds, "--alias", mode)
                for name in names:
                    np.testing.assert_array_equal(outputs[name], mine[name])
        for cache in self.caches:
            self.buffers[cache["input"]] = outputs[cache["output"]]


class MaintenanceTest(unittest.TestCase):
    def companion(self, folder, name, *flags, convert=()):
        path, moves = os.path.join(folder, name + ".onnx"), os.path.join(folder, "moves.onnx")
        done("convert", os.path.join(MODELS, name, "model.onnx"), "-o", path, "--quiet", *convert)
        document = check_json(done("emit-maintenance", path, "-o", moves, "--json", *flags))
        return path, moves, document

    def test_rows_of_all_layouts(self):
        layouts = (("BNSD", 2, ["B", 3, "M", 4]), ("BNDS", 3, ["B", 3, 4, "M"]),
                   ("BSND", 1, ["B", "M", 3, 4]), ("BS(ND)", 1, ["B", "M", 12]),
                   ("(BN)SD", 1, ["rows", "M", 4]), ("BNSD", 2, [2, 3, 10, 4]))
        random = np.random.default_rng(11)
        cases = 0
        for layout, axis, shape in layouts:
            for dtype in (TensorProto.FLOAT, TensorProto.FLOAT16):
                sizes = [{"B": 2, "rows": 6, "M": 10}.get(d, d) for d in shape]
                kind = helper.tensor_dtype_to_np_dtype(dtype)
                feeds = {f"past_{r}": random.standard_normal(sizes).astype(kind)
                         for r in ("key", "value")}
                keep = random.integers(0, 10, (2, 5))
                beam = np.array([1, 0] if cases % 2 else [1, 1])
                with self.subTest(layout=layout, dtype=dtype), \
                        tempfile.TemporaryDirectory() as folder:
                    cases += 1
                    self.rows_of(folder, layer(folder, layout, axis, shape, dtype), layout, axis,
                                 feeds, keep, beam)
        self.assertEqual(cases, 12)

    def rows_of(self, folder, path, layout, axis, feeds, keep, beam):
        names = ("present_key", "present_value")
        for only, indices in (("beam", {"beam_indices": beam}), ("keep", {"keep_indices": keep}),
                              ("both", {"keep_indices": keep, "beam_indices": beam})):
            moves = os.path.join(folder, only + ".onnx")
            run = tool("emit-maintenance", path, "-o", moves, "--only", only)
            if layout == "(BN)SD" and only != "beam":
                self.assertEqual(run.returncode, 1)  # no attention reads them
                continue
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual(done("check", moves), "check: 0 errors, 0 warnings\n")
            theirs = dict(zip(names, session(moves).run(names, feeds | indices)))
            for mode in ("required", "off", "guard"):
                mine = run_in_kvlift(moves, feeds | indices, "--alias", mode)
                for name in names:
                    past = feeds[name.replace("present", "past")]
                    want = moved(past, layout, axis, indices.get("keep_indices"),
                                 indices.get("beam_indices"))
                    np.testing.assert_array_equal(mine[name], want)
                    np.testing.assert_array_equal(theirs[name], want)

    def test_documents(self):
        with tempfile.TemporaryDirectory() as folder:
            path, moves, document = self.companion(folder, "llama_optimum")
            self.assertEqual(document["status"], "written")
            self.assertEqual(document["positions"], "given")
            self.assertEqual(document["position_inputs"], ["position_ids"])
            self.assertEqual(document["by_slot"], ["attention_mask"])
            self.assertTrue(all(c["in_place"] for c in document["caches"]))
            self.assertEqual(len(document["caches"]), 4)
            manifest = check_json(json.dumps(manifest_of(moves)))
            self.assertEqual(manifest["maintenance"]["does"], ["reorder", "keep"])
            model = onnx.load(moves)
            onnx.checker.check_model(model, full_check=True)
            self.assertEqual(model.opset_import[0].version, 24)
            metadata = {p.key: p.value for p in model.metadata_props}
            self.assertEqual(json.loads(metadata["kvlift.manifest"]), manifest)
            again = tool("emit-maintenance", path, "-o", moves)
            self.assertEqual(again.returncode, 5)
            self.assertIn("exists", again.stderr)
            done("emit-maintenance", path, "-o", moves, "--force")
            same = tool("emit-maintenance", path, "-o", path, "--force")
            self.assertEqual(same.returncode, 5)
            source = os.path.join(MODELS, "llama_optimum", "model.onnx")
            self.assertEqual(tool("emit-maintenance", source, "-o", moves + "2").returncode, 1)

    def test_indices_outside_are_errors(self):
        with tempfile.TemporaryDirectory() as folder:
            _, moves, _ = self.companion(folder, "llama_optimum")
            feeds = {f"past_key_values.{k}.{r}": np.zeros((2, 2, 8, 12), np.float32)
                     for k in range(2) for r in ("key", "value")}
            feeds |= {"keep_indices": np.array([[0], [1]]), "beam_indices": np.array([0, 1])}
            session(moves).run(None, feeds)
            for name, value in (("keep_indices", [[0], [8]]), ("beam_indices", [0, 2])):
                with self.assertRaises(Exception):
                    session(moves).run(None, feeds | {name: np.array(value)})
                with self.assertRaises(AssertionError):
                    run_in_kvlift(moves, feeds | {name: np.array(value)})

    def test_what_slots_mean_something_to_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, code in REFUSED.items():
                with self.subTest(name):
                    path = os.path.join(folder, name + ".onnx")
                    done("convert", os.path.join(MODELS, name, "model.onnx"), "-o", path,
                         "--mode", "circular", "--quiet")
                    moves = os.path.join(folder, name + ".moves.onnx")
                    for only in ((), ("--only", "keep")):
                        run = tool("emit-maintenance", path, "-o", moves, "--json", *only)
                        self.assertEqual(run.returncode, 1, run.stderr)
                        document = check_json(run.stdout)
                        self.assertEqual(document["status"], "refused")
                        self.assertEqual(document["reason"]["code"], code, run.stdout)
                        self.assertFalse(os.path.exists(moves))
                    document = check_json(
                        done("emit-maintenance", path, "-o", moves, "--json", "--only", "beam"))
                    self.assertEqual(document["positions"], None)

    def test_decoding_goes_on_as_if_the_others_had_never_been(self):
        for name in EVICTING:
            for flags in ((), ("--target", "ort")):
                with self.subTest(name=name, flags=flags), \
                        tempfile.TemporaryDirectory() as folder:
                    path, moves, _ = self.companion(folder, name, convert=flags)
                    self.evict(name, path, moves, in_kvlift=not flags)

    def evict(self, name, path, moves, in_kvlift):
        batch, random = 2, np.random.default_rng(5)
        caches = manifest_of(path)["caches"]
        before = Original(name, caches, batch)
        after = Converted(path, moves, caches, batch, in_kvlift)
        mask = np.ones((batch, 0), np.int64)
        position = 0

        def step(tokens):
            nonlocal mask, position
            length = np.full(batch, mask.shape[1])
            # The first sequence has two pads in front.
            seen = np.ones((batch, tokens), np.int64)
            if not mask.size:
                seen[0, :2] = 0
            mask = np.concatenate([mask, seen], axis=1)
            positions = np.tile(np.arange(position, position + tokens), (batch, 1))
            if position == 0:
                positions[0] = np.maximum(positions[0] - 2, 0)
            else:
                positions[0] -= 2
            position += tokens
            feeds = {"input_ids": random.integers(0, 90, (batch, tokens)),
                     "attention_mask": mask, "position_ids": positions}
            want, got = before.step(feeds), after.step(feeds, length)
            if (seen == 0).any():
                want, got = want[:, -1], got[:, -1]
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 * np.abs(want).max())

        def move(keep, beam):
            nonlocal mask
            keep, beam = np.array(keep), np.array(beam)
            before.keep(keep, beam)
            after.move(keep_indices=keep, beam_indices=beam)
            mask = np.take_along_axis(mask[beam], keep, axis=1)

        step(10)
        step(1)
        move([[2, 3, 7, 8, 9, 10], [0, 1, 5, 7, 9, 10]], [0, 1])
        step(1)
        step(2)
        step(1)
        # The sequences change places, and tokens go again; slots need not be in order.
        move([[0, 1, 6, 8, 9], [9, 8, 2, 0, 1]], [0, 0])
        step(1)
        step(3)
        # All of them stay: a step of beam search.
        move(np.tile(np.arange(mask.shape[1]), (2, 1)), [1, 1])
        step(1)

    def test_one_of_the_two(self):
        with tempfile.TemporaryDirectory() as folder:
            path, both, _ = self.companion(folder, "llama_optimum")
            random = np.random.default_rng(2)
            caches = {f"past_key_values.{k}.{r}":
                      random.standard_normal((3, 2, 8, 12)).astype(np.float32)
                      for k in range(2) for r in ("key", "value")}
            keep, beam = np.array([[0, 4], [1, 1], [7, 0]]), np.array([2, 0, 0])
            for only, feeds in (("keep", {"keep_indices": keep}), ("beam", {"beam_indices": beam}),
                                ("both", {"keep_indices": keep, "beam_indices": beam})):
                moves = os.path.join(folder, only + ".onnx")
                done("emit-maintenance", path, "-o", moves, "--only", only)
                self.assertEqual({i.name for i in onnx.load(moves).graph.input},
                                 set(feeds) | set(caches))
                ours = run_in_kvlift(moves, caches | feeds, "--alias", "required")
                theirs = session(moves)
                for output, value in zip(theirs.get_outputs(), theirs.run(None, caches | feeds)):
                    past = caches[output.name.replace("present", "past_key_values")]
                    want = moved(past, "BNSD", 2, feeds.get("keep_indices"),
                                 feeds.get("beam_indices"))
                    np.testing.assert_array_equal(value, want)
                    np.testing.assert_array_equal(ours[output.name], want)


if __name__ == "__main__":
    unittest.main()

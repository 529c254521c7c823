"""Finds the node that ONNX Runtime computes wrongly, where the package `onnx` is installed.

All values of the graph become outputs. Each node is then computed alone by ONNX's reference
evaluator, from the operands that ONNX Runtime had; the first whose results are far from ONNX
Runtime's is named. The fused nodes of an optimised session are not seen this way.
"""

import os
from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np

from .errors import Refused
from .runtime import Runtime

# Results of usual kernels differ by less than this part of the largest element.
FAR = {"float16": 2e-2, "float32": 1e-3, "float64": 1e-6}
MOST_BYTES = 2 << 30  # of all values of a graph


class WrongNode(NamedTuple):
    node: str
    operator: str
    value: str
    element: List[int]
    got: float
    reference: float


def _distance(got: np.ndarray, want: np.ndarray) -> Optional[tuple]:
    """Returns the index of an element that is far from the reference's."""
    if got.shape != want.shape or got.dtype != want.dtype or got.size == 0:
        return None
    if got.dtype.name not in FAR:
        wrong = got != want
        return tuple(np.argwhere(wrong)[0]) if wrong.any() else None
    g, w = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(w)
    with np.errstate(invalid="ignore"):
        gap = np.where((g == w) | (np.isnan(g) & np.isnan(w)), 0.0, np.abs(g - w))
    gap = np.where(np.isnan(gap), np.inf, gap)
    scale = np.abs(w[finite]).max() if finite.any() else 1.0
    at = np.unravel_index(int(np.argmax(gap)), gap.shape)
    return at if gap[at] > FAR[got.dtype.name] * max(scale, 1e-30) else None


def _values(runtime: Runtime, onnx: Any, model: Any, folder: str,
            feeds: Dict[str, np.ndarray], types: Dict[str, str]) -> Dict[str, np.ndarray]:
    """Returns every value that the graph computes from the feeds."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    known = {o.name for o in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in known:
                model.graph.output.append(onnx.ValueInfoProto(name=name))
                known.add(name)
    session = runtime.session(model.SerializeToString(), data_folder=folder)
    binding = session.io_binding()
    held = [runtime.value(array, types.get(name, str(array.dtype)))
            for name, array in feeds.items()]
    for name, value in zip(feeds, held):
        binding.bind_ortvalue_input(name, value)
    names = [o.name for o in session.get_outputs()]
    for name in names:
        binding.bind_output(name)
    runtime.run(session, binding)
    found = {}
    for name, value in zip(names, binding.get_outputs()):
        try:
            found[name] = runtime.array_of(value)
        except Exception:  # a type that NumPy does not have, or no tensor
            continue
    return found


def wrong_node(runtime: Runtime, path: str, feeds: Dict[str, np.ndarray],
               types: Dict[str, str]) -> "tuple[Optional[WrongNode], str]":
    """Returns the first node that is computed wrongly, or why none is named."""
    try:
        import onnx
        from onnx import numpy_helper
        from onnx.reference import ReferenceEvaluator
    except ImportError:
        return None, "the package onnx is not installed"
    folder = os.path.dirname(os.path.abspath(path))
    model = onnx.load(path, load_external_data=False)
    try:
        values = _values(runtime, onnx, model, folder, feeds, types)
    except Refused as error:
        return None, f"with all values as outputs the model is refused: {error}"
    if sum(v.nbytes for v in values.values()) > MOST_BYTES:
        return None, "the values of the graph are too large"
    values.update(feeds)
    weights = {}
    for weight in model.graph.initializer:
        if weight.name in values:
            continue
        try:
            weights[weight.name] = numpy_helper.to_array(weight, folder)
        except Exception:  # a type or a file that cannot be read here: its readers are left out
            continue
    values = {**weights, **values}
    checked = 0
    for node in model.graph.node:
        operands = [name for name in node.input if name]
        results = [name for name in node.output if name]
        if not all(name in values for name in operands + results):
            continue
        if any(a.HasField("g") or a.graphs for a in node.attribute):
            continue
        typed = [onnx.helper.make_tensor_value_info(
            n, onnx.helper.np_dtype_to_tensor_dtype(values[n].dtype), values[n].shape)
            for n in dict.fromkeys(operands)]
        graph = onnx.helper.make_graph([node], "one", typed,
                                       [onnx.ValueInfoProto(name=n) for n in results])
        one = onnx.helper.make_model(graph, opset_imports=model.opset_import,
                                     ir_version=model.ir_version)
        try:
            wanted = ReferenceEvaluator(one).run(None, {n: values[n] for n in operands})
        except Exception:  # an operator that the evaluator does not have
            continue
        checked += 1
        for name, want in zip(results, wanted):
            at = _distance(values[name], np.asarray(want))
            if at is not None:
                return WrongNode(node.name or results[0], node.op_type, name,
                                 [int(i) for i in at], float(values[name][at]),
                                 float(np.asarray(want)[at])), ""
    return None, (f"each of {checked} nodes is near ONNX's reference evaluator if all values are "
                  "outputs")

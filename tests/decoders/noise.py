"""What exporters and optimisers do to a graph without changing what it computes."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

INTERFACE = 0.15  # share of values that a disturbance touches


def disturb(model, noises, seed):
    """Applies the named disturbances in their order."""
    rng = np.random.default_rng(seed + 1000)
    for noise in noises:
        NOISES[noise](model, rng)


def ends(graph):
    return {v.name for v in [*graph.input, *graph.output]}


def types_of(model):
    inferred = onnx.shape_inference.infer_shapes(model).graph
    return {v.name: v for v in [*inferred.value_info, *inferred.input, *inferred.output]}


def behind(graph, rng, tag, make):
    """Puts nodes behind some values: make(value, fresh name) -> (nodes, last name) or None."""
    fixed, out, count = ends(graph), [], 0
    new_names = {}
    for node in graph.node:
        node.input[:] = [new_names.get(i, i) for i in node.input]
        out.append(node)
        for value in node.output:
            if (
                not value
                or value in fixed
                or node.op_type == "Constant"
                or rng.random() > INTERFACE
            ):
                continue
            made = make(value, f"{value}_{tag}{count}")
            if made:
                count += 1
                out += made
                new_names[value] = made[-1].output[0]
    del graph.node[:]
    graph.node.extend(out)


def identity(model, rng):
    behind(model.graph, rng, "id", lambda v, n: [helper.make_node("Identity", [v], [n])])


def casts(model, rng):
    """int64 to int32 and back, float to double and back."""
    types = types_of(model)
    there = {TensorProto.INT64: TensorProto.INT32, TensorProto.FLOAT: TensorProto.DOUBLE}

    def make(value, name):
        if value not in types:
            return None
        elem = types[value].type.tensor_type.elem_type
        if elem not in there or elem == TensorProto.INT64 and not small(types[value]):
            return None
        first = helper.make_node("Cast", [value], [name + "a"], to=there[elem])
        return [first, helper.make_node("Cast", [name + "a"], [name], to=elem)]

    behind(model.graph, rng, "cast", make)


def small(info):
    """Vectors of sizes may hold INT_MAX; positions and indices of higher rank do not."""
    return len(info.type.tensor_type.shape.dim) >= 2


def order(model, rng):
    """Another topological order."""
    graph = model.graph
    known = {v.name for v in graph.input} | {t.name for t in graph.initializer} | {""}
    left, out = list(graph.node), []
    while left:
        ready = [n for n in left if all(i in known for i in n.input)]
        node = ready[int(rng.integers(len(ready)))]
        left.remove(node)
        out.append(node)
        known |= set(node.output)
    del graph.node[:]
    graph.node.extend(out)


def names(model, rng):
    """Random names for all inner values and nodes."""
    graph, fixed = model.graph, ends(model.graph)
    renamed = {}

    def new(name):
        if not name or name in fixed:
            return name
        if name not in renamed:
            renamed[name] = "".join(
                rng.choice(list("abcdefghijklmnopqrstuvwxyz0123456789_/.:"), 8)
            ) + str(len(renamed))
        return renamed[name]

    for tensor in graph.initializer:
        tensor.name = new(tensor.name)
    for i, node in enumerate(graph.node):
        node.input[:] = [new(x) for x in node.input]
        node.output[:] = [new(x) for x in node.output]
        node.name = "" if i % 3 == 0 else f"{rng.integers(1 << 30)}_{i}"
    for info in graph.value_info:
        info.name = new(info.name)


def infos(model, rng):
    """Declares the types of all inner values."""
    inferred = onnx.shape_inference.infer_shapes(model)
    del model.graph.value_info[:]
    model.graph.value_info.extend(inferred.graph.value_info)


def dead(model, rng):
    """Nodes that nothing reads."""
    graph = model.graph
    for i, node in enumerate(list(graph.node)):
        if node.output and rng.random() < 0.05:
            graph.node.append(helper.make_node("Shape", [node.output[0]], [f"unused_{i}"]))


def fold_constants(model, rng):
    """Constants become initializers, and small initializers become constants."""
    graph = model.graph
    constants = [
        n for n in graph.node if n.op_type == "Constant" and n.attribute[0].name == "value"
    ]
    for node in constants:
        tensor = node.attribute[0].t
        tensor.name = node.output[0]
        graph.initializer.append(tensor)
        graph.node.remove(node)
    for tensor in [t for t in graph.initializer if np.prod(t.dims) < 16 and rng.random() < 0.5]:
        node = helper.make_node("Constant", [], [tensor.name], value=tensor)
        graph.initializer.remove(tensor)
        graph.node.insert(0, node)


def merge(model, rng):
    """Optimum's merged decoder: one If on use_cache_branch; the other branch ignores the past."""
    graph = model.graph
    pasts = [v for v in graph.input if v.name.startswith("past")]
    branches = []
    for tag in ("no", "with"):
        nodes = []
        for node in graph.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            nodes.append(copy)
        nodes = rename(
            nodes, {v.name for v in graph.input} | {t.name for t in graph.initializer}, tag
        )
        nodes = without_past(nodes, {p.name: p for p in pasts}) if tag == "no" else nodes
        outs = []
        for value in graph.output:
            info = onnx.ValueInfoProto()
            info.CopyFrom(value)
            info.name = f"{value.name}_{tag}"
            outs.append(info)
        branches.append(helper.make_graph(nodes, f"branch_{tag}", [], outs))
    graph.input.append(helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1]))
    node = helper.make_node(
        "If",
        ["use_cache_branch"],
        [v.name for v in graph.output],
        name="optimum::if",
        else_branch=branches[0],
        then_branch=branches[1],
    )
    del graph.node[:]
    graph.node.append(node)


def rename(nodes, known, tag):
    for node in nodes:
        node.input[:] = [i if i in known or not i else f"{i}_{tag}" for i in node.input]
        node.output[:] = [f"{o}_{tag}" for o in node.output]
    return nodes


def without_past(nodes, pasts):
    """Concat(past, new) is new, the length of a past is 0."""
    out = []
    for node in nodes:
        if node.op_type == "Concat" and node.input[0] in pasts:
            kept = node.output[0]
            out.append(helper.make_node("Identity", [node.input[1]], [kept]))
            continue
        if node.op_type == "Shape" and node.input[0] in pasts:
            dims = [d.dim_value for d in pasts[node.input[0]].type.tensor_type.shape.dim]
            size = numpy_helper.from_array(np.array(dims, np.int64)[part(node)])
            out.append(helper.make_node("Constant", [], [node.output[0]], value=size))
            continue
        out.append(node)
    return out


def part(shape):
    ends = {a.name: a.i for a in shape.attribute}
    return slice(ends.get("start", 0), ends.get("end"))


NOISES = {
    "identity": identity,
    "casts": casts,
    "order": order,
    "names": names,
    "infos": infos,
    "dead": dead,
    "constants": fold_constants,
    "merge": merge,
}

"""One random semantic edit of a model: arithmetic, wiring, attributes, constants.

Written without a look at the negative controls of `verify`: the edits are any an editor of graphs
can make.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)


class Editor:
    def __init__(self, model, rng):
        self.model, self.rng, self.graph = model, rng, model.graph
        inferred = onnx.shape_inference.infer_shapes(model).graph
        self.types = {}
        for v in [*inferred.value_info, *inferred.input, *inferred.output]:
            t = v.type.tensor_type
            self.types[v.name] = (
                t.elem_type,
                tuple(d.dim_value or d.dim_param or "?" for d in t.shape.dim),
            )
        self.weights = {i.name: i for i in self.graph.initializer}
        for name, tensor in self.weights.items():
            self.types[name] = (tensor.data_type, tuple(tensor.dims))
        self.nodes = list(self.graph.node)

    def choose(self, values):
        values = list(values)
        return values[int(self.rng.integers(len(values)))] if values else None

    def elem(self, name):
        return self.types.get(name, (0, ()))[0]

    def insert(self, at, op, inputs, output, **attributes):
        self.graph.node.insert(at, helper.make_node(op, inputs, [output], **attributes))

    def constant(self, value, elem):
        name = f"edit.constant{len(self.graph.initializer)}"
        dtype = helper.tensor_dtype_to_np_dtype(elem)
        self.graph.initializer.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def operand(self, wanted):
        """(node number, operand number) of some operand that `wanted` accepts."""
        return self.choose(
            (n, k)
            for n, node in enumerate(self.nodes)
            for k, name in enumerate(node.input)
            if name and wanted(node, k, name)
        )

    def replace(self, n, k, op, *more, **attributes):
        node = self.graph.node[n]
        self.insert(n, op, [node.input[k], *more], "edit.value", **attributes)
        self.graph.node[n + 1].input[k] = "edit.value"
        return f"{op} in front of operand {k} of {node.op_type} {node.name or node.output[0]}"

    def scaled(self):
        spot = self.operand(lambda node, k, name: self.elem(name) in FLOATS)
        if spot is None:
            return None
        factor = self.constant(self.choose([0.5, 0.9, 1.1, 1.5, -1.0]), self.elem_at(spot))
        return self.replace(*spot, "Mul", factor)

    def elem_at(self, spot):
        return self.elem(self.nodes[spot[0]].input[spot[1]])

    def shifted_index(self):
        spot = self.operand(
            lambda node, k, name: self.elem(name) == TensorProto.INT64
            and (node.op_type, k)
            in (
                ("TensorScatter", 2),
                ("Attention", 6),
                ("Gather", 1),
                ("Add", 0),
                ("Slice", 1),
                ("Slice", 2),
            )
        )
        if spot is None:
            return None
        by = self.constant(self.choose([1, -1]), TensorProto.INT64)
        return self.replace(*spot, "Add", by)

    def rewired(self):
        node_of = {o: n for n, node in enumerate(self.nodes) for o in node.output}

        def others(n, name):
            return [
                v
                for v, t in self.types.items()
                if v != name and t == self.types.get(name) and node_of.get(v, -1) < n
            ]

        spot = self.operand(lambda node, k, name: self.elem(name) in FLOATS)
        if spot is None:
            return None
        n, k = spot
        name = self.nodes[n].input[k]
        other = self.choose(others(n, name))
        if other is None:
            return None
        self.nodes[n].input[k] = other
        return f"{other} for {name} in {self.nodes[n].op_type}"

    def swapped(self):
        n = self.choose(
            n
            for n, node in enumerate(self.nodes)
            if node.op_type in ("Sub", "Div", "MatMul", "Concat", "Where", "Attention", "LessOrEqual")
            and len(node.input) > 2 - (node.op_type != "Attention")
        )
        if n is None:
            return None
        node = self.nodes[n]
        a, b = {"Attention": (1, 2), "Where": (1, 2)}.get(node.op_type, (0, 1))
        x, y = node.input[a], node.input[b]
        node.input[a], node.input[b] = y, x
        return f"operands of {node.op_type} {node.name or node.output[0]} swapped"

    def weight(self):
        name = self.choose(
            n for n, w in self.weights.items() if w.data_type in FLOATS and np.prod(w.dims) > 1
        )
        if name is None:
            return None
        value = numpy_helper.to_array(self.weights[name]).copy()
        how = self.choose(["roll", "reverse", "scale"])
        if how == "roll":
            value = np.roll(value, 1, axis=-1)
        elif how == "reverse":
            value = value[::-1].copy()
        else:
            value = (value * 1.25).astype(value.dtype)
        self.weights[name].CopyFrom(numpy_helper.from_array(value, name))
        return f"{how} of weight {name}"

    def attribute(self):
        n = self.choose(
            n
            for n, node in enumerate(self.nodes)
            if node.op_type in ("Attention", "TensorScatter", "Transpose", "Softmax", "Gather")
        )
        if n is None:
            return None
        node = self.nodes[n]
        values = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Attention":
            key = self.choose(["is_causal", "scale", "softcap"])
            new = {
                "is_causal": 1 - values.get("is_causal", 0),
                "scale": float(values.get("scale", 0.3) * 1.5),
                "softcap": 0.7 if not values.get("softcap") else 0.0,
            }[key]
        elif node.op_type == "Transpose":
            key, new = "perm", list(values.get("perm", [0]))
            if len(new) < 3:
                return None
            i = int(self.rng.integers(1, len(new) - 1))
            new[i], new[i + 1] = new[i + 1], new[i]
        else:
            key = "axis"
            new = values.get("axis", -1 if node.op_type == "Softmax" else 0) - 1
        kept = [a for a in node.attribute if a.name != key]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(key, new)])
        return f"{key} of {node.op_type} {node.name or node.output[0]} is {new}"

    def skipped(self):
        n = self.choose(
            n
            for n, node in enumerate(self.nodes)
            if len(node.output) == 1
            and node.input
            and node.input[0] in self.types
            and self.types[node.input[0]] == self.types.get(node.output[0])
        )
        if n is None:
            return None
        node = self.nodes[n]
        what = f"{node.op_type} {node.name or node.output[0]} skipped"
        node.CopyFrom(helper.make_node("Identity", [node.input[0]], [node.output[0]]))
        return what

    def run(self):
        kinds = [
            self.scaled,
            self.shifted_index,
            self.rewired,
            self.swapped,
            self.weight,
            self.attribute,
            self.skipped,
        ]
        for _ in range(20):
            what = self.choose(kinds)()
            if what is not None:
                return what
        return None


def edit(model, seed):
    """Edits the model; says what was done, or None."""
    return Editor(model, np.random.default_rng(seed)).run()

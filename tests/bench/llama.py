"""Llama-like decoders with random weights, everything written out, in several types and forms.

  concat  growing caches: Concat, repeat_kv by Unsqueeze, Expand and Reshape, a mask from comparing
          keys with position_ids, MatMul, Softmax, MatMul
  padded  the same with an attention_mask [1, T] that hides pads
  static  TensorScatter and Attention-24 over caches of a fixed capacity; write_indices and
          nonpad_kv_seqlen are inputs

Forms of one size and type share one file of weights. Of the types int8 and int4 products are
MatMulNBits in blocks of 32 with float scales, at accuracy level 4, and all else is fp32.
"""
import os
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx
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


TINY = Size(layers=2, hidden=64, q_heads=4, kv_heads=2, head=16, ffn=128, vocab=256)
SMALL = Size(layers=8, hidden=512, q_heads=8, kv_heads=2, head=64, ffn=1408, vocab=8192)
QUICK = Size(layers=4, hidden=256, q_heads=8, kv_heads=2, head=32, ffn=704, vocab=2048)
MEDIUM = Size(layers=24, hidden=896, q_heads=14, kv_heads=2, head=64, ffn=4864, vocab=32000)

TYPES = {"fp32": (TensorProto.FLOAT, np.float32), "fp16": (TensorProto.FLOAT16, np.float16),
         "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}
BITS, BLOCK = {"int8": 8, "int4": 4}, 32


class Builder:
    """Nodes and constants of a graph. Weights go to the file `path`, unless it is there."""

    def __init__(self, path, type_name):
        self.path, self.offset = path, 0
        self.bits = BITS.get(type_name)
        self.onnx_type, self.dtype = TYPES["fp32" if self.bits else type_name]
        self.data = None if os.path.exists(path) else open(path, "wb")
        # Slices of a block of noise: as good as noise for timing, and made quickly.
        self.block = np.random.default_rng(11).standard_normal((1 << 20) + 7, np.float32)
        self.nodes, self.initializers, self.known = [], [], {}

    def weight(self, name, *shape, centre=0.0, scale=None):
        scale = shape[0] ** -0.5 if scale is None else scale
        start = self.offset // 4096 * 977 % self.block.size
        block = np.roll(self.block, -start) if self.data is not None else self.block
        block = block * np.float32(scale) + np.float32(centre)
        return self.external(name, self.onnx_type, shape, block.astype(self.dtype))

    def external(self, name, onnx_type, shape, values):
        """A tensor of `values`, over and over, in the file."""
        size = int(np.prod(shape)) * values.dtype.itemsize
        self.offset += -self.offset % 4096
        if self.data is not None:
            self.data.seek(self.offset)
            self.data.write(np.resize(values, shape).tobytes())
        tensor = TensorProto(name=name, dims=shape, data_type=onnx_type,
                             data_location=TensorProto.EXTERNAL)
        where = {"location": os.path.basename(self.path), "offset": self.offset, "length": size}
        for key, value in where.items():
            tensor.external_data.add(key=key, value=str(value))
        self.offset += size
        self.initializers.append(tensor)
        return name

    def product(self, x, weights, k, n, **attributes):
        """x [.., k] times the weights of that name, [k, n]."""
        if self.bits is None:
            return self("MatMul", x, self.weight(weights, k, n), **attributes)
        blocks, size = k // BLOCK, BLOCK * self.bits // 8
        codes = self.external(weights, TensorProto.UINT8, (n, blocks, size),
                              np.resize(self.block, 1 << 20).view(np.uint8))
        scales = self.external(weights + ".scales", self.onnx_type, (n * blocks,),
                               np.full(1, k ** -0.5 / 2 ** (self.bits - 1), np.float32))
        return self("MatMulNBits", x, codes, scales, domain="com.microsoft", K=k, N=n,
                    bits=self.bits, block_size=BLOCK, accuracy_level=4, **attributes)

    def const(self, values, dtype=np.int64):
        array = np.asarray(values, dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.known:
            self.known[key] = f"const_{len(self.known)}"
            self.initializers.append(numpy_helper.from_array(array, self.known[key]))
        return self.known[key]

    def number(self, value):
        return self.const(value, self.dtype)

    def __call__(self, op, *inputs, name=None, **attributes):
        name = name or f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"node_{len(self.nodes)}",
                                           **attributes))
        return name


def rms_norm(g, x, weight):
    squares = g("ReduceMean", g("Mul", x, x), g.const([-1]), keepdims=1)
    root = g("Sqrt", g("Add", squares, g.number(1e-5)))
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


def attend_growing(g, q, k, v, layer, size, mask):
    keys = g("Concat", f"past.{layer}.key", k, name=f"present.{layer}.key", axis=2)
    values = g("Concat", f"past.{layer}.value", v, name=f"present.{layer}.value", axis=2)
    transposed = g("Transpose", repeat_kv(g, keys, size), perm=[0, 1, 3, 2])
    scores = g("Div", g("MatMul", q, transposed), g.number(size.head ** 0.5))
    return g("MatMul", g("Softmax", g("Add", scores, mask), axis=-1), repeat_kv(g, values, size))


def attend_static(g, q, k, v, layer):
    keys, values = (
        g("TensorScatter", f"past.{layer}.{role}", update, "write_indices",
          name=f"present.{layer}.{role}", axis=-2) for role, update in (("key", k), ("value", v)))
    return g("Attention", q, keys, values, "", "", "", "nonpad_kv_seqlen", is_causal=1)


def attention(g, x, layer, size, cos, sin, mask):
    def heads(name, count):
        flat = g.product(x, f"l{layer}.{name}", size.hidden, count * size.head)
        return g("Transpose", g("Reshape", flat, g.const([0, 0, -1, size.head])),
                 perm=[0, 2, 1, 3])
    q = rotate(g, heads("q", size.q_heads), cos, sin, size.head // 2)
    k = rotate(g, heads("k", size.kv_heads), cos, sin, size.head // 2)
    v = heads("v", size.kv_heads)
    mixed = (attend_growing(g, q, k, v, layer, size, mask) if mask
             else attend_static(g, q, k, v, layer))
    flat = g("Reshape", g("Transpose", mixed, perm=[0, 2, 1, 3]),
             g.const([0, 0, size.q_heads * size.head]))
    return g.product(flat, f"l{layer}.o", size.q_heads * size.head, size.hidden)


def feed_forward(g, x, layer, size):
    gate = g.product(x, f"l{layer}.gate", size.hidden, size.ffn)
    up = g.product(x, f"l{layer}.up", size.hidden, size.ffn)
    return g.product(g("Mul", g("Mul", gate, g("Sigmoid", gate)), up), f"l{layer}.down", size.ffn,
                     size.hidden)


def rotation(g, size):
    """cos, sin [1, 1, S, D]."""
    rates = 10000.0 ** -(np.arange(0, size.head, 2) / size.head)
    angles = g("Mul", g("Unsqueeze", g("Cast", "position_ids", to=TensorProto.FLOAT), g.const([2])),
               g.const(rates.reshape(1, 1, -1), np.float32))
    both = g("Unsqueeze", g("Concat", angles, angles, axis=-1), g.const([1]))
    results = [g("Cos", both), g("Sin", both)]
    return results if g.dtype == np.float32 else [g("Cast", r, to=g.onnx_type) for r in results]


def causal_mask(g, padded):
    """The additive mask [1, 1, S, T]."""
    past = g("Gather", g("Shape", "past.0.key"), g.const(2))
    total = g("Add", past, g("Gather", g("Shape", "input_ids"), g.const(1)))
    slots = g("Unsqueeze", g("Range", g.const(0), total, g.const(1)), g.const([0, 1, 2]))
    seen = g("LessOrEqual", slots, g("Unsqueeze", "position_ids", g.const([1, 3])))
    if padded:
        real = g("Cast", "attention_mask", to=TensorProto.BOOL)
        seen = g("And", seen, g("Unsqueeze", real, g.const([1, 2])))
    lowest = ml_dtypes.finfo(g.dtype).min
    return g("Where", seen, g.number(0), g.number(lowest))


def build(path, size, type_name="fp32", form="concat"):
    """Writes the decoder, and its weights to `path` without what follows the last '-' + '.data'."""
    info = helper.make_tensor_value_info
    static = form == "static"
    g = Builder(path.rsplit("-", 1)[0] + ".data", type_name)
    inputs = [info(n, TensorProto.INT64, [1, "S"]) for n in ("input_ids", "position_ids")]
    if static:
        inputs += [info(n, TensorProto.INT64, [1]) for n in ("write_indices", "nonpad_kv_seqlen")]
    if form == "padded":
        inputs.append(info("attention_mask", TensorProto.INT64, [1, "T"]))
    outputs = [info("logits", g.onnx_type, [1, "S", size.vocab])]
    for layer in range(size.layers):
        for role in ("key", "value"):
            past, present = ("M", "M") if static else ("P", "T")
            inputs.append(info(f"past.{layer}.{role}", g.onnx_type,
                               [1, size.kv_heads, past, size.head]))
            outputs.append(info(f"present.{layer}.{role}", g.onnx_type,
                                [1, size.kv_heads, present, size.head]))
    cos, sin = rotation(g, size)
    mask = None if static else causal_mask(g, form == "padded")
    x = g("Gather", g.weight("embedding", size.vocab, size.hidden, scale=1.0), "input_ids")
    for layer in range(size.layers):
        norms = [g.weight(f"l{layer}.norm{k}", size.hidden, centre=1, scale=0.02) for k in range(2)]
        x = g("Add", x, attention(g, rms_norm(g, x, norms[0]), layer, size, cos, sin, mask))
        x = g("Add", x, feed_forward(g, rms_norm(g, x, norms[1]), layer, size))
    last = rms_norm(g, x, g.weight("norm", size.hidden, centre=1, scale=0.02))
    g.product(last, "head", size.hidden, size.vocab, name="logits")
    if g.data is not None:
        g.data.close()
    graph = helper.make_graph(g.nodes, "decoder", inputs, outputs, g.initializers)
    opset, ir = (24, 10) if static else (18, 8)
    sets = [helper.make_opsetid("", opset)]
    if g.bits:
        sets.append(helper.make_opsetid("com.microsoft", 1))
    model = helper.make_model(graph, opset_imports=sets, ir_version=ir)
    onnx.save(model, path)

"""GroupQueryAttention as onnxruntime-genai's model builder writes it with other options, made of a
model that it wrote without them: caches in few bits (kv_cache_quant_scheme), from what that model's
caches held, and local layers with buffers of a few slots (windowed_kv_cache)."""
import re

import numpy as np
from onnx import TensorProto, helper, numpy_helper

TYPES = {8: TensorProto.INT8, 4: TensorProto.UINT8}  # of integers, by their bits
# What a calibration divides the largest number by.
LARGEST = {TensorProto.INT8: 128, TensorProto.UINT8: 8, TensorProto.FLOAT8E4M3FN: 448}


def scales_of(rows, kept, channels):
    """rows [B, heads, T, size]: one scale for each element of each head, or one for all."""
    sizes = np.abs(rows).max(axis=(0, 2)).reshape(-1)
    sizes = sizes if channels else sizes.max(keepdims=True)
    return (np.maximum(sizes, 1e-3) / LARGEST[kept]).astype(np.float32)


def in_few_bits(model, presents, kept, channels):
    """Changes the model. presents: what its outputs of that name held; kept: the type of the caches,
    int8, float8e4m3fn, or uint8 for two numbers in a byte."""
    graph, bits = model.graph, 4 if kept == TensorProto.UINT8 else 8
    declared = {v.name: v for v in [*graph.input, *graph.output]}
    for node in graph.node:
        if node.op_type != "GroupQueryAttention":
            continue
        layer = re.search(r"\d+", node.output[1]).group()
        node.input.extend([""] * (12 - len(node.input)))
        for side, present in (("k", node.output[1]), ("v", node.output[2])):
            name = f"model.layers.{layer}.attn.{side}_scale"
            scale = scales_of(presents[present], kept, channels)
            graph.initializer.append(numpy_helper.from_array(scale, name))
            node.input.append(name)
            form = "PER_CHANNEL" if channels else "PER_TENSOR"
            node.attribute.append(helper.make_attribute(f"{side}_quant_type", form))
        node.attribute.append(helper.make_attribute("kv_cache_bit_width", bits))
        for name in (*node.input[3:5], *node.output[1:3]):
            tensor = declared[name].type.tensor_type
            tensor.elem_type = kept
            size = tensor.shape.dim[3]
            if size.HasField("dim_value") and bits == 4:
                size.dim_value //= 2
    return model


def attentions(model):
    return [n for n in model.graph.node if n.op_type == "GroupQueryAttention"]


def slide(model, layers, window, slots=None):
    """Gives the pasts of these layers `slots` slots; None: the host chooses how many."""
    declared = {v.name: v for v in [*model.graph.input, *model.graph.output]}
    for layer in layers:
        node = attentions(model)[layer]
        kept = [a for a in node.attribute if a.name != "local_window_size"]
        del node.attribute[:]
        node.attribute.extend(kept)
        node.attribute.append(helper.make_attribute("local_window_size", window))
        node.attribute.append(helper.make_attribute("sliding_window_cache", 1))
        for name, symbol in [*((n, "past_sliding_length") for n in node.input[3:5]),
                             *((n, "total_sliding_length") for n in node.output[1:3])]:
            dim = declared[name].type.tensor_type.shape.dim[2]
            dim.Clear()
            if slots is None:
                dim.dim_param = symbol
            else:
                dim.dim_value = slots

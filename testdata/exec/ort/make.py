#!/usr/bin/env python3
"""Records what ONNX Runtime computes: one file NAME.onnx per case, for exec_conformance_test.

  make.py [NAME_PART...]     writes the cases whose name contains a part (all without arguments)

A case is a one-node model. Its inputs are graph inputs with a default (an initializer of the same
name); what ONNX Runtime returned is stored as initializers "expected/OUTPUT".
"""
import os
import sys

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
from onnx import helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
MS = "com.microsoft"
RNG = np.random.default_rng(7)
CASES = []


def case(function):
    """Registers a maker of cases; it calls record()."""
    CASES.append(function)
    return function


def normal(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


def infer(model, feeds):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, feeds)


def output_info(name, dtype):
    if dtype is None:
        return onnx.ValueInfoProto(name=name)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None)


def one_node(op, inputs, outputs, domain, opset, constants, typed, attributes):
    """The model of one node, the feeds, and the names of its outputs."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    outs = [f"y{i}" for i in range(outputs)] if isinstance(outputs, int) else outputs
    node = helper.make_node(op, names, outs, domain=domain, **attributes)
    tensors = [numpy_helper.from_array(np.asarray(x), n) for x, n in zip(inputs, names) if n]
    fed = [i for i, n in enumerate(names) if n and i not in constants]
    infos = [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in tensors
             if int(t.name[1:]) in fed]
    graph = helper.make_graph([node], "g", infos, [output_info(o, typed) for o in outs if o],
                              initializer=[t for t in tensors if int(t.name[1:]) not in fed])
    imports = [helper.make_opsetid("", opset)]
    if domain:
        imports.append(helper.make_opsetid(domain, 1))
    model = helper.make_model(graph, opset_imports=imports, ir_version=min(10, 3 if opset < 9 else 10))
    return model, {f"x{i}": np.asarray(inputs[i]) for i in fed}, outs


def record(name, op, inputs, outputs=1, domain="", opset=21, constants=(), keep=None, like=None,
           typed=None, extra=None, **attributes):
    """inputs: arrays, None where omitted; `constants`: indices of weights. `keep` maps an output
    index to an index expression: the rest of that output is not defined. `like`: other inputs of
    the same meaning, for forms that ONNX Runtime has no CPU kernel for. `typed`: the element type of
    the outputs where it cannot be inferred. `extra`: attributes with names of these arguments."""
    attributes.update(extra or {})
    wanted = sys.argv[1:]
    if wanted and not any(part in name for part in wanted):
        return
    form = (domain, opset, constants, typed, attributes)
    model, feeds, outs = one_node(op, inputs, outputs, *form)
    results = infer(*one_node(op, like or inputs, outputs, *form)[:2])
    for o, value in zip([o for o in outs if o], results):
        index = (keep or {}).get(outs.index(o))
        if index is not None:  # undefined elements are NaN (floats): the test skips them
            masked = np.full_like(value, np.nan)
            masked[index] = value[index]
            value = masked
        model.graph.initializer.append(numpy_helper.from_array(value, "expected/" + o))
        info = next(i for i in model.graph.output if i.name == o)
        info.CopyFrom(helper.make_tensor_value_info(
            o, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape))
    for n, value in feeds.items():
        model.graph.initializer.append(numpy_helper.from_array(value, n))
    path = os.path.join(HERE, name + ".onnx")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    onnx.save(model, path)
    print(name)


def gqa(name, B=1, S=1, past=3, N=4, Nk=2, D=16, rotary=0, shared=0, packed=False, lengths=None,
        positions=None, bias=None, sink=False, **attributes):
    """lengths: valid tokens by batch entry, new ones included."""
    total = past + S
    lengths = np.array(lengths if lengths is not None else [total] * B)
    capacity = shared or past
    q, k, v = normal(B, S, N * D), normal(B, S, Nk * D), normal(B, S, Nk * D)
    pk, pv = normal(B, Nk, capacity, D), normal(B, Nk, capacity, D)
    for b in range(B):
        valid = 0 if past == 0 else lengths[b] - S
        pk[b, :, valid:] = 0
        pv[b, :, valid:] = 0
    inputs = [q, k, v, pk, pv]
    if packed:
        inputs = [np.concatenate([q, k, v], 2), None, None, pk, pv]
    if capacity == 0:
        inputs[3:5] = [None, None]
    inputs += [(lengths - 1).astype(np.int32), np.array(total, np.int32)]
    inputs += [normal(32, rotary // 2), normal(32, rotary // 2)] if rotary else [None, None]
    inputs += [positions, bias, normal(N) if sink else None]
    while inputs[-1] is None:
        inputs.pop()
    keep = None
    if past == 0 and len(set(lengths)) > 1:  # rows of padding are not defined
        keep = {0: np.arange(S)[None, :] < lengths[:, None]}
    record("gqa_" + name, "GroupQueryAttention", inputs, 3, MS, keep=keep, num_heads=N,
           kv_num_heads=Nk, **({"do_rotary": 1} if rotary else {}), **attributes)


@case
def group_query_attention():
    gqa("decode")
    gqa("prompt", S=5, past=0)
    gqa("prompt_ragged", B=2, S=5, past=0, lengths=[3, 5])
    gqa("chunk", S=4)
    gqa("decode_ragged", B=3, past=5, lengths=[3, 6, 2])
    gqa("shared_decode", B=2, past=3, shared=9)
    gqa("shared_ragged", B=2, past=5, shared=9, lengths=[2, 6])
    gqa("shared_prompt", S=4, past=0, shared=9)
    gqa("shared_chunk", S=3, past=4, shared=9)
    gqa("packed", packed=True)
    gqa("packed_prompt", S=4, past=0, packed=True, rotary=16)
    gqa("rotary_decode", B=2, past=5, lengths=[4, 6], rotary=16)
    gqa("rotary_prompt_ragged", B=2, S=5, past=0, lengths=[3, 5], rotary=16)
    gqa("rotary_chunk", S=3, rotary=16)
    gqa("rotary_partial", D=32, rotary=16)
    gqa("rotary_interleaved", S=3, rotary=16, rotary_interleaved=1)
    gqa("positions_decode", B=2, positions=np.array([[7], [2]], np.int64), rotary=16)
    gqa("positions_prompt", S=4, past=0, positions=np.array([[3, 5, 6, 9]], np.int64), rotary=16)
    gqa("positions_chunk", S=3, positions=np.array([[3, 5, 9]], np.int64), rotary=16)
    gqa("window_decode", past=9, local_window_size=4)
    gqa("window_prompt", S=7, past=0, local_window_size=3)
    gqa("window_chunk", S=4, past=5, local_window_size=3)
    gqa("softcap", S=3, softcap=2.0)
    gqa("scale", S=3, scale=0.7)
    gqa("smooth", S=3, smooth_softmax=1)
    gqa("sink", S=3, sink=True)
    gqa("sink_window", S=4, past=4, sink=True, local_window_size=2)
    gqa("bias", S=3, bias=normal(1, 4, 3, 6))
    gqa("bias_broadcast", S=1, B=2, bias=normal(1, 1, 1, 4))
    gqa("bias_softcap", S=3, bias=normal(1, 4, 3, 6), softcap=1.5)
    gqa("bias_window", S=3, past=5, bias=normal(1, 4, 3, 8), local_window_size=3)
    gqa("one_group", N=3, Nk=3, S=2, past=0)
    gqa("not_causal", S=4, past=0, causal=0)


def mha(name, B=2, S=3, L=None, past=0, N=2, D=8, Dv=None, form="3d", bias=False, mask=None,
        scores=None, outputs=1, **attributes):
    L = S if L is None else L
    Dv = Dv or D
    like = None
    if form == "packed_qkv":
        x = normal(B, S, N, 3, D)
        inputs = [x, None, None]
        like = [x[:, :, :, i].reshape(B, S, N * D) for i in range(3)]
    elif form == "packed_kv":
        inputs = [normal(B, S, N * D), normal(B, L, N, 2, D), None]
        like = inputs[:1] + [inputs[1][:, :, :, i].reshape(B, L, N * D) for i in range(2)]
    elif form == "4d":
        inputs = [normal(B, S, N * D), normal(B, N, L, D), normal(B, N, L, Dv)]
    else:
        inputs = [normal(B, S, N * D), normal(B, L, N * D), normal(B, L, N * Dv)]
    inputs += [normal(2 * N * D + N * Dv) if bias else None, mask, scores]
    if past:
        inputs += [normal(B, N, past, D), normal(B, N, past, Dv)]
    while inputs[-1] is None:
        inputs.pop()
    record("mha_" + name, "MultiHeadAttention", inputs, outputs, MS, like=like, num_heads=N,
           **attributes)


@case
def multi_head_attention():
    i32 = np.int32
    mha("plain")
    mha("cross", L=5)
    mha("causal", unidirectional=1)
    mha("past", past=4, outputs=3)
    mha("past_causal", past=4, outputs=3, unidirectional=1)
    mha("past_one", S=1, past=4, outputs=3, bias=True)
    mha("present_only", outputs=3)
    mha("bias", bias=True)
    mha("value_size", Dv=4, L=5, bias=True)
    mha("4d", L=5, form="4d")
    mha("packed_kv", L=5, form="packed_kv")
    mha("packed_qkv", form="packed_qkv")
    mha("scale", scale=0.3)
    mha("mask_lengths", L=5, mask=np.array([3, 5], i32))
    mha("mask_2d", L=5, mask=np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]], i32))
    mha("mask_2d_total", past=2, outputs=3, unidirectional=1,
        mask=np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]], i32))
    mha("mask_row_of_nothing", L=4, mask=np.array([[0, 0, 0, 0], [0, 1, 1, 1]], i32))
    mha("mask_causal_left_padding", unidirectional=1, mask=np.array([[0, 0, 1], [0, 1, 1]], i32))
    mha("mask_3d", L=5, mask=RNG.integers(0, 2, (2, 3, 5)).astype(i32))
    mha("mask_filter", L=4, mask=np.array([[0, 0, 1, 1], [0, 1, 1, 1]], i32),
        mask_filter_value=-2.0)
    mha("scores", L=5, scores=normal(2, 2, 3, 5))
    mha("scores_broadcast", past=2, outputs=3, scores=normal(1, 1, 3, 5))
    mha("scores_mask", L=5, scores=normal(1, 2, 3, 5), mask=np.array([3, 5], i32))


def attention(name, B=2, S=3, past=None, N=2, D=8, Din=12, values=None, bias=True, mask=None,
              scores=None, outputs=1, **attributes):
    hidden, wide = N * D, (values or N * D)
    width = 2 * hidden + wide
    inputs = [normal(B, S, Din), normal(Din, width) * 0.3, normal(width) if bias else None, mask]
    inputs += [None if past is None else normal(2, B, N, past, D), scores]
    while inputs[-1] is None:
        inputs.pop()
    if values:
        attributes["qkv_hidden_sizes"] = [hidden, hidden, wide]
    record("attention_" + name, "Attention", inputs, outputs, MS, constants=(1, 2), num_heads=N,
           **attributes)


@case
def projected_attention():
    i32 = np.int32
    attention("plain")
    attention("causal", unidirectional=1)
    attention("past", past=4, outputs=2, unidirectional=1)
    attention("past_empty", past=0, outputs=2, unidirectional=1)
    attention("past_one", S=1, past=4, outputs=2, unidirectional=1)
    attention("present_only", outputs=2)
    attention("values", values=8)
    attention("mask_lengths", mask=np.array([2, 3], i32))
    attention("mask_ends", mask=np.array([3, 2, 1, 0], i32))
    attention("mask_2d", mask=np.array([[1, 1, 0], [0, 1, 1]], i32))
    attention("mask_2d_past", past=2, outputs=2, unidirectional=1,
              mask=np.array([[0, 1, 1, 1, 1], [0, 0, 0, 1, 1]], i32))
    attention("mask_3d", mask=RNG.integers(0, 2, (2, 3, 3)).astype(i32))
    attention("scale", scale=0.25)
    attention("scores", scores=normal(1, 2, 3, 3), unidirectional=1)


@case
def fused_matmul():
    def fused(name, a, b, **attributes):
        record("fused_matmul_" + name, "FusedMatMul", [a, b], domain=MS, **attributes)
    fused("scaled", normal(2, 3, 4, 5), normal(2, 3, 6, 5), transB=1, alpha=0.25)
    fused("left", normal(4, 3), normal(2, 4, 5), transA=1)
    fused("both", normal(2, 4, 3), normal(2, 5, 4), transA=1, transB=1)
    fused("batch_left", normal(4, 2, 3, 5), normal(2, 3, 5, 6), transBatchA=1)
    fused("batch_both", normal(4, 2, 3, 5), normal(6, 2, 3, 5), transBatchA=1, transBatchB=1,
          transB=1)
    fused("vector", normal(5), normal(5, 3), alpha=2.0)


def bits(name, bits=4, K=40, N=6, block=16, zero=None, bias=False, half=False, shape=(2, 3)):
    dtype = np.float16 if half else np.float32
    blocks = -(-K // block)
    data = RNG.integers(0, 256, (N, blocks, block * bits // 8)).astype(np.uint8)
    zeros = None
    if zero == "packed":
        zeros = RNG.integers(0, 256, (N, -(-blocks * bits // 8))).astype(np.uint8)
    elif zero == "float":
        zeros = (normal(N, blocks) + 7).astype(dtype)
    inputs = [normal(*shape, K, dtype=dtype), data, (normal(N, blocks) * 0.1).astype(dtype), zeros,
              None, normal(N, dtype=dtype) if bias else None]
    while inputs[-1] is None:
        inputs.pop()
    record("matmul_nbits_" + name, "MatMulNBits", inputs, domain=MS,
           constants=(1, 2, 3, 5), K=K, N=N, bits=bits, block_size=block)


@case
def matmul_nbits():
    bits("4")
    bits("4_packed_zeros", zero="packed")
    bits("4_float_zeros", zero="float")
    bits("4_bias", bias=True)
    bits("4_half", half=True, K=32)
    bits("8", bits=8, block=32)
    bits("8_zeros", bits=8, zero="packed")


@case
def contrib_norms():
    for name, op in (("skip_layer_norm", "SkipLayerNormalization"),
                     ("skip_rms_norm", "SkipSimplifiedLayerNormalization")):
        x, skip, gamma, beta, bias = normal(2, 3, 8), normal(2, 3, 8), *normal(3, 8)
        more = [beta] if op == "SkipLayerNormalization" else []
        sums = ["y", "", "", "sum"]
        record(name, op, [x, skip, gamma] + more, sums, MS, epsilon=1e-5)
        record(name + "_bias", op, [x, skip, gamma] + more + [bias], sums, MS, epsilon=1e-5)
        record(name + "_broadcast", op, [x, skip[:1], gamma] + more, 1, MS, epsilon=1e-3)
    record("skip_layer_norm_no_beta", "SkipLayerNormalization",
           [normal(2, 3, 8), normal(3, 8), normal(8)], 1, MS, epsilon=1e-5)
    record("rms_norm_default_domain", "SimplifiedLayerNormalization",
           [normal(2, 3, 8), normal(8)], 1, "", axis=-1, epsilon=1e-6, stash_type=1)
    record("layer_norm_opset13", "LayerNormalization", [normal(2, 8), normal(8), normal(8)], 1, "",
           13, axis=-1, epsilon=1e-5)
    ids = RNG.integers(0, 5, (2, 4)).astype(np.int32)
    tables = [normal(5, 8), normal(6, 8)]
    norm = [normal(8), normal(8)]
    record("embed_layer_norm", "EmbedLayerNormalization",
           [ids, ids % 2, *tables, normal(2, 8), *norm, (ids > 1).astype(np.int32)],
           ["y", "mask", "sum"], MS, epsilon=1e-5)
    record("embed_layer_norm_positions", "EmbedLayerNormalization",
           [ids, None, *tables, None, *norm, None, np.array([[3, 1, 0, 5]], np.int32)],
           ["y", "mask"], MS, epsilon=1e-5)
    record("bias_gelu", "BiasGelu", [normal(2, 3, 8), normal(8)], 1, MS)
    record("fast_gelu", "FastGelu", [normal(2, 3, 8), normal(8)], 1, MS)
    record("quick_gelu", "QuickGelu", [normal(2, 3, 8)], 1, MS, alpha=1.5)
    record("gelu", "Gelu", [normal(2, 3, 8)], 1, MS)


@case
def rotary():
    def embed(name, shape, positions, width, **attributes):
        record("rotary_" + name, "RotaryEmbedding",
               [normal(*shape), positions, normal(20, width), normal(20, width)], 1, MS,
               **attributes)
    ids = np.array([[3, 4, 5], [0, 1, 9]], np.int64)
    embed("3d", (2, 3, 32), ids, 8)
    embed("4d", (2, 2, 3, 16), ids, 8)
    embed("offset", (2, 3, 32), np.array([4], np.int64), 8)
    embed("interleaved", (2, 3, 32), ids, 8, interleaved=1)
    embed("partial", (2, 3, 64), ids, 8, num_heads=2, rotary_embedding_dim=16)
    embed("scale", (2, 3, 32), ids, 8, scale=2.0)


@case
def multimodal_rotary():
    def embed(name, shape, width, sections, **attributes):
        tokens = shape[-2] if len(shape) == 4 else shape[1]
        ids = RNG.integers(0, 20, (3, shape[0], tokens)).astype(np.int64)
        record("mrotary_" + name, "MRotaryEmbedding",
               [normal(*shape), ids, normal(20, width), normal(20, width)], 1, MS,
               mrope_section=sections, num_heads=2, **attributes)
    embed("sections", (2, 3, 32), 8, [4, 2, 2])
    embed("interleaved_sections", (2, 3, 32), 8, [4, 2, 2], mrope_layout=1)
    embed("4d", (2, 2, 3, 16), 8, [2, 3, 3], mrope_layout=1)
    embed("pairs", (1, 4, 32), 8, [3, 3, 2], interleaved=1)
    embed("partial", (2, 3, 64), 8, [4, 2, 2], rotary_embedding_dim=16)


@case
def linear_attention_gates():
    def gate(name, outputs, dtype=np.float32):
        a, b = [(3 * normal(2, 3, 4)).astype(dtype) for _ in range(2)]
        record("gate_" + name, "LinearAttentionGate",
               [a, normal(4), -np.exp(normal(4))] + ([b] if outputs == 2 else []), outputs, MS)
    gate("both", 2)
    gate("decay", 1)


@case
def gated_norms():
    def norm(name, shape, width, **attributes):
        record("gated_norm_" + name, "GatedRMSNorm",
               [normal(*shape), normal(width), normal(*shape)], 1, MS, **attributes)
    norm("silu", (2, 3, 16), 8, activation="silu", epsilon=1e-3)
    norm("sigmoid", (2, 3, 16), 16, activation="sigmoid", epsilon=1e-6)
    norm("defaults", (2, 2, 8), 8)


@case
def gather_blocks():
    ids = np.array([[3, 0], [-1, 2]], np.int64)
    data = RNG.integers(0, 256, (5, 16)).astype(np.uint8)
    record("gather_blocks_uint8", "GatherBlockQuantized", [data, ids, normal(5, 2)], 1, MS,
           constants=(0, 2), bits=4, block_size=16, gather_axis=0, quantize_axis=1)
    record("gather_blocks_zeros", "GatherBlockQuantized",
           [data, ids, normal(5, 2), RNG.integers(0, 256, (5, 1)).astype(np.uint8)], 1, MS,
           constants=(0, 2, 3), bits=4, block_size=16, gather_axis=0, quantize_axis=1)
    record("gather_blocks_8bits", "GatherBlockQuantized", [data, ids, normal(5, 1)], 1, MS,
           constants=(0, 2), bits=8, block_size=16, gather_axis=0, quantize_axis=1)


@case
def convolutions():
    def conv(name, x, w, bias=False, **attributes):
        inputs = [normal(*x), normal(*w)] + ([normal(w[0])] if bias else [])
        record("conv_" + name, "Conv", inputs, **attributes)
    conv("1d", (2, 3, 9), (4, 3, 3), bias=True, pads=[1, 1])
    conv("1d_stride", (2, 3, 9), (4, 3, 3), strides=[2], pads=[1, 1])
    conv("causal_depthwise", (2, 4, 7), (4, 1, 4), bias=True, group=4, pads=[3, 0])
    conv("dilated", (1, 2, 11), (2, 2, 3), dilations=[3])
    conv("groups", (1, 6, 5), (4, 3, 2), group=2)
    conv("2d", (2, 3, 6, 5), (4, 3, 3, 2), bias=True, pads=[1, 0, 1, 1], strides=[2, 1])
    conv("same_upper", (1, 2, 7), (2, 2, 4), auto_pad="SAME_UPPER", strides=[2])
    conv("same_lower", (1, 2, 7), (2, 2, 4), auto_pad="SAME_LOWER")
    conv("valid", (1, 2, 7), (2, 2, 4), auto_pad="VALID")


@case
def quantized():
    x = normal(3, 8)
    for name, dtype in (("int8", np.int8), ("uint8", np.uint8), ("int16", np.int16),
                        ("uint16", np.uint16)):
        zero = np.array(3, dtype)
        record("quantize_" + name, "QuantizeLinear", [x, np.float32(0.02), zero])
        codes = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (3, 8)).astype(dtype)
        record("dequantize_" + name, "DequantizeLinear", [codes, np.float32(0.02), zero])
    scales = np.abs(normal(3)) + np.float32(0.1)
    record("quantize_axis", "QuantizeLinear", [x, scales, RNG.integers(-9, 9, 3).astype(np.int8)],
           axis=0)
    record("quantize_opset13", "QuantizeLinear", [x, np.float32(0.5)], opset=13)
    record("quantize_half", "QuantizeLinear",
           [x.astype(np.float16), np.float16(0.02), np.uint8(128)])
    record("quantize_blocks", "QuantizeLinear",
           [x, np.abs(normal(3, 2)) + np.float32(0.1), np.zeros((3, 2), np.int8)], axis=1,
           block_size=4)
    codes = RNG.integers(-128, 127, (3, 8)).astype(np.int8)
    record("dequantize_axis", "DequantizeLinear",
           [codes, scales, RNG.integers(-9, 9, 3).astype(np.int8)], axis=0)
    record("dequantize_blocks", "DequantizeLinear", [codes, normal(3, 2)], axis=1, block_size=4)
    record("dequantize_int32", "DequantizeLinear",
           [RNG.integers(-70000, 70000, (3, 8)).astype(np.int32), np.float32(0.001)])
    record("dequantize_half", "DequantizeLinear", [codes, np.float16(0.02), np.int8(4)])
    record("dynamic_quantize", "DynamicQuantizeLinear", [x], 3)
    a = RNG.integers(0, 255, (2, 3, 4)).astype(np.uint8)
    b = RNG.integers(-128, 127, (4, 5)).astype(np.int8)
    record("matmul_integer", "MatMulInteger", [a, b, np.uint8(120)])
    record("matmul_integer_columns", "MatMulInteger",
           [a[0], b, np.uint8(120), RNG.integers(-9, 9, 5).astype(np.int8)], constants=(1, 3))
    record("qlinear_matmul", "QLinearMatMul",
           [a, np.float32(0.02), np.uint8(120), b, np.float32(0.03), np.int8(2), np.float32(0.4),
            np.uint8(90)])


def grid(scale, zero, dtype):
    """The scale and the zero point of quantised numbers."""
    return [np.float32(scale), np.array(zero, dtype)]


def codes(*shape, dtype=np.int8):
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


@case
def quantized_operators():
    for name, dtype, zero in (("int8", np.int8, -3), ("uint8", np.uint8, 131)):
        def part(*shape, scale):
            return [codes(*shape, dtype=dtype)] + grid(scale, zero, dtype)
        for op, scale in (("Add", 0.043), ("Mul", 0.07)):
            record(f"qlinear_{op.lower()}_{name}", "QLinear" + op,
                   part(2, 3, 5, scale=0.031) + part(3, 1, scale=0.027) + grid(scale, zero + 2, dtype),
                   1, MS)
        record(f"qlinear_sigmoid_{name}", "QLinearSigmoid",
               part(2, 9, scale=0.06) + grid(0.004, zero, dtype), 1, MS)
        record(f"qlinear_leaky_relu_{name}", "QLinearLeakyRelu",
               part(2, 9, scale=0.06) + grid(0.05, zero, dtype), 1, MS, alpha=0.2)
        for kind, axis, version in (("last", -1, 20), ("axis", 1, 13), ("flat", 1, 11)):
            record(f"qlinear_softmax_{kind}_{name}", "QLinearSoftmax",
                   part(2, 3, 7, scale=0.05) + grid(0.0039, zero, dtype), 1, MS, axis=axis,
                   extra={"opset": version})
        record(f"qlinear_concat_{name}", "QLinearConcat",
               grid(0.05, zero, dtype) + part(2, 3, 4, scale=0.05) + part(2, 2, 4, scale=0.031) +
               part(2, 1, 4, scale=0.08), 1, MS, axis=1)
        record(f"qlinear_where_{name}", "QLinearWhere",
               [codes(2, 1, 4) > 0] + part(3, 4, scale=0.02) + part(2, 3, 1, scale=0.05) +
               grid(0.05, zero, dtype), 1, MS)
        weights = [codes(5, 4), np.float32(0.02), np.int8(0)]
        left = part(3, 5, scale=0.03)
        record(f"qgemm_{name}", "QGemm",
               left + weights + [codes(4).astype(np.int32) * 9] + grid(0.2, zero, dtype), 1, MS,
               constants=(3, 4, 5), alpha=1.0)
        record(f"qgemm_floats_{name}", "QGemm", left + weights, 1, MS, constants=(3, 4, 5),
               typed=np.float32, alpha=0.5)
        turned = [codes(4, 5), np.array([0.02, 0.01, 0.03, 0.015], np.float32), np.zeros(4, np.int8)]
        record(f"qgemm_turned_{name}", "QGemm", left + turned + [None] + grid(0.2, zero, dtype), 1, MS,
               constants=(3, 4, 5), transB=1)


@case
def bnb4():
    # Blocks of 16 weights run over the ends of rows of 24 and of 7.
    for K, N in ((24, 6), (7, 5)):
        for kind, name in enumerate(("fp4", "nf4")):
            codes = RNG.integers(0, 256, (N * K + 1) // 2).astype(np.uint8)
            scales = np.abs(normal((N * K + 15) // 16))
            record(f"matmul_bnb4_{name}_k{K}", "MatMulBnb4", [normal(2, 3, K), codes, scales], 1, MS,
                   constants=(1, 2), K=K, N=N, block_size=16, quant_type=kind, transB=1)


@case
def old_opsets():
    x, y = normal(2, 3, 4), normal(3, 1)
    for op in ("Max", "Min", "Sum", "Mean"):
        record(op.lower() + "_opset7", op, [x, x + 1, x * 2], opset=7)
    record("dropout_opset7", "Dropout", [x], 1, opset=7)
    record("pad_opset2", "Pad", [x], opset=7, pads=[0, 1, 0, 0, 0, 2], value=1.5)
    record("slice_opset1", "Slice", [x], opset=7, axes=[1, 2], starts=[1, -3], ends=[9, -1])
    record("clip_opset6", "Clip", [x], opset=7, min=-0.5)
    record("topk_opset1", "TopK", [x], 2, opset=7, k=2, axis=1)
    record("topk_opset10", "TopK", [x, np.array([2], np.int64)], 2, opset=10, axis=1)
    record("squeeze_opset1", "Squeeze", [x[:, :1]], opset=7, axes=[1])
    record("unsqueeze_opset1", "Unsqueeze", [x], opset=7, axes=[0, 4])
    record("reduce_sum_opset1", "ReduceSum", [x], opset=7, axes=[1], keepdims=0)
    record("reduce_mean_opset11", "ReduceMean", [x], opset=11, axes=[-1])
    record("softmax_opset7", "Softmax", [x], opset=7, axis=1)
    record("log_softmax_opset11", "LogSoftmax", [x], opset=11, axis=0)
    record("split_opset2", "Split", [x], 2, opset=7, axis=1, split=[1, 2])
    record("split_opset11_equal", "Split", [x], 2, opset=11, axis=-1)
    record("gemm_opset7", "Gemm", [y, normal(1, 4), normal(4)], opset=7, alpha=0.5, beta=2.0)
    record("prelu_opset7", "PRelu", [x, normal(4)], opset=7)
    record("where_opset9", "Where", [x > 0, x, y[0]], opset=9)
    record("expand_opset8", "Expand", [y, np.array([2, 3, 4], np.int64)], opset=8)
    record("onehot_opset9", "OneHot", [np.array([0, 3], np.int64), np.int64(4),
                                       np.array([0, 1], np.float32)], opset=9)
    record("scatter_opset9", "Scatter", [x[0], np.array([[1, 0]], np.int64),
                                         np.array([[7, 8]], np.float32)], opset=9, axis=1)
    record("cast_opset6", "Cast", [x], opset=7, to=7)
    record("argmax_opset1", "ArgMax", [x], opset=7, axis=1, keepdims=0)
    record("flatten_opset1", "Flatten", [x], opset=7, axis=2)
    record("tile_opset6", "Tile", [x, np.array([1, 2, 3], np.int64)], opset=7)
    record("eye_like", "EyeLike", [x[0]], k=1, dtype=6)
    record("hardmax_opset7", "Hardmax", [x], opset=7, axis=1)
    record("hardmax", "Hardmax", [x], axis=1)


def record_model(name, text, opset=21):
    """A whole graph as ONNX text; its inputs are random floats of the declared shapes or, for
    integers and bools, ones."""
    wanted = sys.argv[1:]
    if wanted and not any(part in name for part in wanted):
        return
    header = f'<ir_version: 10, opset_import: ["" : {opset}, "local" : 1]>\n'
    model = onnx.parser.parse_model(header + text)
    feeds = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [d.dim_value for d in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feeds[value.name] = normal(*shape) if dtype == np.float32 else np.ones(shape, dtype)
    results = infer(model, feeds)
    for info, value in zip(model.graph.output, results):
        model.graph.initializer.append(numpy_helper.from_array(value, "expected/" + info.name))
    for n, value in feeds.items():
        model.graph.initializer.append(numpy_helper.from_array(value, n))
    onnx.save(model, os.path.join(HERE, name + ".onnx"))
    print(name)


@case
def control_flow():
    record_model("if_captures_two_levels", """
g (float[2,3] x, bool c) => (float[2,3] y) {
  a = Neg(x)
  y = If (c) <then_branch = t () => (float[2,3] r) {
        r = If (c) <then_branch = tt () => (float[2,3] q) { q = Add(a, x) },
                    else_branch = te () => (float[2,3] p) { p = Identity(a) }>
      }, else_branch = e () => (float[2,3] s) { s = Mul(a, a) }>
}""")
    record_model("if_shapes_differ", """
g (float[2,3] x, bool c) => (float[N,M] y) {
  y = If (c) <then_branch = t () => (float[3,2] r) { r = Transpose(x) },
              else_branch = e () => (float[2,3] s) { s = Identity(x) }>
}""")
    record_model("loop_captures", """
g (float[3] x, int64 n) => (float[3] last, float[K,3] all) {
  three = Constant<value = int64 {3}>()
  trips = Mul(n, three)
  cond = Constant<value = bool {1}>()
  start = Sub(x, x)
  last, all = Loop (trips, cond, start) <body = b (int64 i, bool go, float[3] s)
      => (bool more, float[3] next, float[3] seen) {
    more = Identity(go)
    step = Cast<to = 1>(i)
    scaled = Mul(x, step)
    next = Add(s, scaled)
    seen = Neg(next)
  }>
}""")
    record_model("loop_no_iterations", """
g (float[3] x, int64 n) => (float[3] last, float[K,3] all) {
  trips = Sub(n, n)
  last, all = Loop (trips, , x) <body = b (int64 i, bool go, float[3] s)
      => (bool more, float[3] next, float[3] seen) {
    more = Identity(go)
    next = Neg(s)
    seen = Neg(next)
  }>
}""")
    record_model("loop_stops", """
g (float[3] x) => (float[3] last, int64 count) {
  zero = Constant<value = int64 {0}>()
  one = Constant<value = int64 {1}>()
  limit = Constant<value = int64 {4}>()
  go = Constant<value = bool {1}>()
  last, count = Loop ( , go, x, zero) <body = b (int64 i, bool c, float[3] s, int64 k)
      => (bool more, float[3] next, int64 k2) {
    k2 = Add(k, one)
    next = Add(s, x)
    more = Less(k2, limit)
  }>
}""")
    record_model("loop_in_if_in_loop", """
g (float[2] x, int64 n, bool c) => (float[2] y) {
  two = Constant<value = int64 {2}>()
  trips = Add(n, two)
  y = Loop (trips, c, x) <body = b (int64 i, bool go, float[2] s) => (bool more, float[2] next) {
    more = Identity(go)
    next = If (c) <then_branch = t () => (float[2] r) {
      r = Loop (two, c, s) <body = bb (int64 j, bool go2, float[2] s2)
          => (bool more2, float[2] next2) {
        more2 = Identity(go2)
        next2 = Add(s2, x)
      }>
    }, else_branch = e () => (float[2] q) { q = Neg(s) }>
  }>
}""")
    record_model("scan_captures", """
g (float[2] s0, float[4,2] x, float[3,4] w) => (float[2] last, float[2,4] sums, float[4,3] ws) {
  last, sums, ws = Scan (s0, x, w) <num_scan_inputs = 2, scan_input_axes = [0, 1],
      scan_input_directions = [1, 0], scan_output_axes = [1, 0], scan_output_directions = [0, 1],
      body = b (float[2] s, float[2] e, float[3] f) => (float[2] n, float[2] o, float[3] p) {
    t = Add(s, e)
    n = Mul(t, s0)
    o = Identity(t)
    p = Neg(f)
  }>
}""")
    record_model("functions", """
g (float[2,3] x, bool c) => (float[2,3] y, float[2,3] z) {
  y = local.twice <alpha = 0.5> (x)
  z = local.choose (x, c)
}
<domain: "local", opset_import: ["" : 21, "local" : 1]>
twice <alpha: float = 0.1> (x) => (y) {
  a = local.scaled <alpha: float = @alpha> (x)
  y = Add(a, a)
}
<domain: "local", opset_import: ["" : 21]>
scaled <alpha: float = 0.1> (x) => (y) { y = LeakyRelu <alpha: float = @alpha> (x) }
<domain: "local", opset_import: ["" : 21, "local" : 1]>
choose (x, c) => (y) {
  y = If (c) <then_branch = t () => (r) { r = local.scaled <alpha = 2.0> (x) },
              else_branch = e () => (s) { s = Neg(x) }>
}""")


@case
def carried_states():
    def conv(name, S, past=True, bias=True, taps=4, **attributes):
        inputs = [normal(2, 3, S), normal(3, 1, taps), normal(3) if bias else None]
        if past:
            inputs.append(normal(2, 3, (taps - 1) * attributes.get("dilation", 1)))
        while inputs[-1] is None:
            inputs.pop()
        record("causal_conv_" + name, "CausalConvWithState", inputs, 2, MS, **attributes)
    conv("prompt", 5, past=False)
    conv("chunk", 5)
    conv("one", 1, activation="silu")
    conv("no_bias", 2, past=False, bias=False)
    conv("dilated", 3, dilation=2)

    def linear(name, rule, S=3, N=2, Nk=2, D=4, Dv=3, past=True, per_key=False, one=False, **more):
        decay = -np.abs(normal(2, S, Nk * (D if per_key else 1)))
        beta = np.abs(normal(2, S, 1 if one else Nk))
        inputs = [normal(2, S, N * D), normal(2, S, Nk * D), normal(2, S, Nk * Dv),
                  normal(2, Nk, D, Dv) if past else None, decay if "gated" in rule else None,
                  beta if "delta" in rule else None]
        while inputs[-1] is None:
            inputs.pop()
        record("linear_attention_" + name, "LinearAttention", inputs, 2, MS, update_rule=rule,
               q_num_heads=N, kv_num_heads=Nk, **more)
    linear("linear", "linear")
    linear("gated", "gated")
    linear("gated_per_key", "gated", per_key=True)
    linear("delta", "delta")
    linear("gated_delta", "gated_delta", past=False)
    linear("one", "gated_delta", S=1, one=True, scale=0.7)
    linear("groups", "gated_delta", N=4)
    linear("inverse_groups", "gated_delta", N=1, Nk=2)


@case
def fused_quantized():
    a = RNG.integers(0, 255, (2, 3, 4)).astype(np.uint8)
    b = RNG.integers(-128, 127, (4, 5)).astype(np.int8)
    columns = np.abs(normal(5)) * np.float32(0.01)
    record("matmul_integer_to_float", "MatMulIntegerToFloat",
           [a, b, np.array([0.02], np.float32), np.array([0.01], np.float32), np.uint8(120)], 1, MS)
    record("matmul_integer_to_float_columns", "MatMulIntegerToFloat",
           [a, b, np.array([0.02], np.float32), columns, np.uint8(120),
            RNG.integers(-9, 9, 5).astype(np.int8), normal(5)], 1, MS, constants=(1, 3, 5, 6))
    record("dynamic_quantize_matmul", "DynamicQuantizeMatMul",
           [normal(2, 3, 4), b, np.array([0.01], np.float32), np.int8(3)], 1, MS)
    record("dynamic_quantize_matmul_columns", "DynamicQuantizeMatMul",
           [normal(2, 3, 4), b, columns, None, normal(5)], 1, MS, constants=(1, 2, 4))
    for activation in ("Relu", "Sigmoid", "Tanh"):
        record("fused_gemm_" + activation.lower(), "FusedGemm",
               [normal(3, 4), normal(5, 4), normal(5)], 1, MS, transB=1, activation=activation)
    record("fused_gemm_leaky", "FusedGemm", [normal(3, 4), normal(4, 5)], 1, MS,
           activation="LeakyRelu", activation_alpha=0.3)
    record("fused_conv", "FusedConv", [normal(1, 2, 5, 4), normal(3, 2, 3, 2), normal(3)], 1, MS,
           activation="Relu", pads=[1, 0, 1, 0])


@case
def group_query_attention_more():
    q, k = normal(2, 1, 32), normal(2, 1, 16)
    record("gqa_half", "GroupQueryAttention",
           [x.astype(np.float16) for x in (q, k, k * 2, normal(2, 1, 3, 16), normal(2, 1, 3, 16))] +
           [np.array([3, 3], np.int32), np.array(4, np.int32)], 3, MS, num_heads=2, kv_num_heads=1)
    weights = [normal(16), normal(16)]
    base = [q, k, k * 2, normal(2, 1, 3, 16), normal(2, 1, 3, 16), np.array([3, 3], np.int32),
            np.array(4, np.int32)] + [None] * 7
    normed = []
    for x, w in zip((q, k), weights):
        heads = x.reshape(2, 1, -1, 16)
        heads = heads / np.sqrt(np.mean(heads * heads, -1, keepdims=True) + 1e-6) * w
        normed.append(heads.reshape(x.shape).astype(np.float32))
    record("gqa_normed", "GroupQueryAttention", base + weights, 3, MS, like=normed + base[2:7],
           num_heads=2, kv_num_heads=1)


def gqa_cache(name, bits, S=1, past=3, capacity=0, channels=True, N=4, Nk=2, D=16, B=1, window=0):
    """A cache of int8 or packed int4."""
    stored = D if bits == 8 else D // 2
    dtype, low, high = (np.int8, -100, 100) if bits == 8 else (np.uint8, 0, 256)
    caches = [RNG.integers(low, high, (B, Nk, capacity or past, stored)).astype(dtype)
              for _ in range(2)]
    for cache in caches:
        cache[:, :, past:] = 0
    shape = (1, Nk, 1, D) if channels else (1,)
    scales = [(RNG.random(shape) * 0.02 + 0.01).astype(np.float32) * (1 if bits == 8 else 10)
              for _ in range(2)]
    form = "PER_CHANNEL" if channels else "PER_TENSOR"
    inputs = [normal(B, S, N * D), normal(B, S, Nk * D), normal(B, S, Nk * D), *caches,
              np.full(B, past + S - 1, np.int32), np.array(past + S, np.int32)]
    record("gqa_cache_" + name, "GroupQueryAttention", inputs + [None] * 5 + scales, 3, MS,
           num_heads=N, kv_num_heads=Nk, kv_cache_bit_width=bits, k_quant_type=form,
           v_quant_type=form, **({"local_window_size": window} if window else {}))


def gqa_cache_ties():
    """Rows halfway between two codes, where x / scale and x * (1 / scale) are rounded apart."""
    rng = np.random.default_rng(11)
    S, D, scales = 3, 16, [np.float32(0.013), np.float32(0.0071)]
    rows = []
    for scale in scales:
        x = ((rng.integers(-100, 100, 4000) + 0.5) * np.float64(scale)).astype(np.float32)
        apart = np.rint(x / scale) != np.rint(x * (np.float32(1) / scale))
        rows.append(x[apart][:S * D].reshape(1, S, D))
    past = np.zeros((1, 1, 0, D), np.int8)
    lengths = [np.full(1, S - 1, np.int32), np.array(S, np.int32)]
    record("gqa_cache_int8_ties", "GroupQueryAttention",
           [rng.normal(size=(1, S, D)).astype(np.float32), *rows, past, past, *lengths]
           + [None] * 5 + [s.reshape(1) for s in scales], 3, MS, num_heads=1, kv_num_heads=1,
           kv_cache_bit_width=8, k_quant_type="PER_TENSOR", v_quant_type="PER_TENSOR")


@case
def group_query_attention_caches():
    gqa_cache("int8", 8, S=3, past=4)
    gqa_cache("int8_prompt", 8, S=5, past=0, channels=False)
    gqa_cache("int8_shared", 8, past=4, capacity=9, B=2, window=3)
    gqa_cache("int4", 4, past=6)
    gqa_cache("int4_chunk", 4, S=3, past=2, channels=False)
    gqa_cache("int4_shared", 4, past=4, capacity=9)
    gqa_cache_ties()


def resident(tokens, capacity, window):
    step = capacity - window + 1
    return tokens if tokens <= capacity else tokens - step * -(-(tokens - capacity) // step)


def gqa_window(name, S, past, capacity, window, N=4, Nk=2, D=16, bias=False, rotary=False):
    """A buffer of the last tokens."""
    caches = [normal(1, Nk, capacity, D) for _ in range(2)]
    for cache in caches:
        cache[:, :, resident(past, capacity, window):] = 0
    inputs = [normal(1, S, N * D), normal(1, S, Nk * D), normal(1, S, Nk * D), *caches,
              np.array([past + S - 1], np.int32), np.array(past + S, np.int32)]
    inputs += [normal(32, D // 2), normal(32, D // 2)] if rotary else [None, None]
    inputs += [None, normal(1, N, S, past + S) if bias else None]
    while inputs[-1] is None:
        inputs.pop()
    kept = (slice(None), slice(None), slice(0, resident(past + S, capacity, window)))
    record("gqa_window_cache_" + name, "GroupQueryAttention", inputs, 3, MS,
           keep={1: kept, 2: kept}, num_heads=N, kv_num_heads=Nk, sliding_window_cache=1,
           local_window_size=window, **({"do_rotary": 1} if rotary else {}))


@case
def group_query_attention_windows():
    gqa_window("filling", 1, 3, 6, 4)
    gqa_window("evicts", 1, 6, 6, 4, rotary=True)
    gqa_window("later", 1, 10, 6, 4, bias=True)
    gqa_window("tight", 1, 9, 4, 4)
    gqa_window("prompt", 9, 0, 6, 4, rotary=True)
    gqa_window("chunk", 5, 7, 6, 4)
    gqa_window("wide", 3, 20, 11, 4)


@case
def group_query_attention_scores():
    for mode, name in ((1, "scores"), (2, "probabilities")):
        for form, more in (("", {}), ("_softcap", {"softcap": 1.5}),
                           ("_window", {"local_window_size": 2})):
            q, k = normal(1, 3, 32), normal(1, 3, 16)
            caches = [normal(1, 1, 2, 16), normal(1, 1, 2, 16)]
            record(f"gqa_{name}{form}", "GroupQueryAttention",
                   [q, k, k + 1, *caches, np.array([4], np.int32), np.array(5, np.int32)], 4, MS,
                   num_heads=2, kv_num_heads=1, qk_output=mode, **more)
        q, k = normal(1, 4, 32), normal(1, 4, 16)
        record(f"gqa_{name}_prompt", "GroupQueryAttention",
               [q, k, k + 1, None, None, np.array([3], np.int32), np.array(4, np.int32)] +
               [None] * 3 + [normal(1, 2, 4, 4), normal(2)], 4, MS, num_heads=2, kv_num_heads=1,
               qk_output=mode)


@case
def matmul_nbits_more():
    bits("2", bits=2, N=7)
    bits("2_zeros", bits=2, zero="packed", block=32)
    bits("2_float_zeros", bits=2, zero="float", K=64)
    bits("4_block_32", block=32, K=70, N=5)
    bits("4_block_64", block=64, K=130, zero="packed")
    bits("4_block_128", block=128, K=200, zero="packed", bias=True)
    bits("4_block_256", block=256, K=300)
    bits("8_block_128", bits=8, block=128, K=200, bias=True)
    bits("8_half", bits=8, half=True, K=64, block=32)
    bits("4_one_row", shape=(1, 1), K=64, N=33, block=32, zero="packed")
    bits("4_many_rows", shape=(2, 17), K=64, N=33, block=32, zero="packed")
    groups = RNG.integers(0, 3, 40).astype(np.int32)
    record("matmul_nbits_groups", "MatMulNBits",
           [normal(3, 40), RNG.integers(0, 256, (6, 3, 8)).astype(np.uint8), normal(6, 3), None,
            groups], domain=MS, constants=(1, 2, 4), K=40, N=6, bits=4, block_size=16)


@case
def multi_head_attention_buffers():
    def buffers(name, S, P, M=6, B=2, N=2, D=8, beams=None, more=(None, None, None)):
        inputs = [normal(B, S, N * D), normal(B, S, N * D), normal(B, S, N * D), *more,
                  normal(B, N, M, D), normal(B, N, M, D), np.array([P], np.int32), beams]
        inputs = inputs[:-1] if beams is None else inputs
        record("mha_shared_" + name, "MultiHeadAttention", inputs, 3, MS, num_heads=N)

    buffers("decode", 1, 3)
    buffers("first", 1, 0)
    buffers("full", 1, 5, more=(normal(48), None, normal(1, 2, 1, 6)))
    buffers("chunk", 3, 2)
    buffers("mask", 1, 3, more=(None, np.array([[0, 1, 1, 1], [1, 1, 1, 1]], np.int32), None))
    buffers("beams", 1, 4, beams=RNG.integers(0, 2, (1, 2, 6)).astype(np.int32))
    q, k = normal(2, 3, 16), normal(2, 4, 16)
    record("mha_qk", "MultiHeadAttention",
           [q, k, k + 1, None, np.array([[0, 1, 1, 1], [1, 1, 1, 1]], np.int32), normal(1, 2, 3, 4)],
           ["y0", "", "", "y3"], MS, num_heads=2, typed=np.float32)


@case
def sequences():
    record_model("sequence_split_parts", """
g (float[2,5] x) => (float[2,2] a, float[2,1] b) {
  two = Constant<value = int64 {2}>()
  first = Constant<value = int64 {1}>()
  last = Constant<value = int64 {2}>()
  s = SplitToSequence<axis = 1>(x, two)
  a = SequenceAt(s, first)
  b = SequenceAt(s, last)
}""")
    record_model("sequence_split_lengths", """
g (float[5,2] x) => (float[N,2] a, float[M,2] b) {
  lengths = Constant<value = int64[2] {3, 2}>()
  zero = Constant<value = int64 {0}>()
  minus = Constant<value = int64 {-1}>()
  s = SplitToSequence(x, lengths)
  a = SequenceAt(s, zero)
  b = SequenceAt(s, minus)
}""")
    record_model("sequence_unbind", """
g (float[3,2] x) => (float[3] a, float[3] b, float[2,3] c) {
  zero = Constant<value = int64 {0}>()
  minus = Constant<value = int64 {-1}>()
  s = SplitToSequence<axis = 1, keepdims = 0>(x)
  a = SequenceAt(s, minus)
  b = SequenceAt(s, zero)
  t = SequenceConstruct(b, a)
  c = ConcatFromSequence<axis = 0, new_axis = 1>(t)
}""")
    record_model("sequence_concat", """
g (float[3,2] x) => (float[3,4] a, float[3,2] b) {
  one = Constant<value = int64 {1}>()
  y = Neg(x)
  s = SequenceConstruct(y, x)
  a = ConcatFromSequence<axis = -1>(s)
  b = SequenceAt(s, one)
}""", opset=13)
    record_model("sequence_last_slice", """
g (float[3,2] x) => (float[1,2] a) {
  minus = Constant<value = int64 {-1}>()
  s = SplitToSequence(x)
  a = SequenceAt(s, minus)
}""")


@case
def contrib_movement():
    record("contrib_trilu", "Trilu", [normal(2, 4, 5), np.array(1, np.int64)], 1, MS, upper=0)
    record("contrib_pad", "Pad", [normal(2, 3), np.array([0, 1, 2, 0], np.int64),
                                  np.array([0.5], np.float32)], 1, MS)


@case
def experts():
    """Mixtures of experts, which the executor has no kernels for: tests/verify/experts_test.cc."""
    E, H, I, tokens = 4, 16, 16, (2, 3)

    def routed():
        return normal(*tokens, H), normal(tokens[0] * tokens[1], E)

    def moe(name, fused=1, bias=True, **attributes):
        weights = [normal(E, fused * I, H) / 4, normal(E, fused * I) if bias else None,
                   normal(E, H, I) / 4, normal(E, H) if bias else None]
        record("experts/moe_" + name, "MoE", [*routed(), *weights], 1, MS, constants=range(2, 6),
               typed=np.float32, **{"k": 2, **attributes})

    def qmoe(name, bits, block=0, zeros=False, bias=True, **attributes):
        def coded(rows, columns):
            blocks = columns // block if block else 1
            scales = (RNG.random((E, rows, blocks)) + 1).astype(np.float32) / 2 ** bits
            codes = RNG.integers(0, 256, (E, rows, columns * bits // 8)).astype(np.uint8)
            shape = (E, rows, -(-blocks * bits // 8)) if block else (E, rows * bits // 8)
            zero = RNG.integers(0, 256, shape).astype(np.uint8) if zeros else None
            return codes, scales if block else scales[:, :, 0], zero
        w1, s1, z1 = coded(2 * I, H)
        w2, s2, z2 = coded(H, I)
        biases = [normal(E, 2 * I), normal(E, H)] if bias else [None, None]
        inputs = [*routed(), w1, s1, biases[0], w2, s2, biases[1], None, None, None, z1, z2]
        if block:
            attributes["block_size"] = block
        record("experts/qmoe_" + name, "QMoE", inputs, 1, MS, constants=range(2, 13),
               typed=np.float32, expert_weight_bits=bits, weights_prepacked=0, k=2,
               activation_type="swiglu", swiglu_fusion=1, **attributes)

    for activation in ("relu", "gelu", "silu", "identity"):
        moe(activation, activation_type=activation, normalize_routing_weights=1)
    moe("all_weights", activation_type="silu", normalize_routing_weights=0)
    moe("one_expert", activation_type="silu", k=1)
    swiglu = {"activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.702,
              "activation_beta": 1.0, "normalize_routing_weights": 1}
    moe("swiglu", 2, **swiglu)
    moe("swiglu_limit", 2, bias=False, swiglu_limit=0.5, **swiglu)
    qmoe("columns4", 4)
    qmoe("columns8", 8, bias=False)
    qmoe("blocks4", 4, 16, swiglu_limit=0.7, activation_beta=1.0)
    qmoe("zeros4", 4, 16, zeros=True)
    qmoe("column_zeros4", 4, zeros=True)


if __name__ == "__main__":
    for make in CASES:
        RNG = np.random.default_rng(7)
        make()

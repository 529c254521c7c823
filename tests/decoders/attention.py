"""Spellings of scaled dot product attention over decomposed operators."""

import numpy as np

MS = "com.microsoft"


def number(b, value, dtype=None):
    return b.net.const(np.asarray(value, dtype or b.spec.dtype))


# ---- grouped heads
def repeat_heads(b, x, axis=1):
    """[B,Nk,W,D] -> [B,N,W,D]: each key head serves N/Nk query heads next to each other."""
    net, spec, times = b.net, b.spec, b.spec.q_heads // b.spec.kv_heads
    if times == 1 or spec.repeat == "broadcast":
        return x
    how, last = spec.repeat, net.dim(x, 3, spec.shape_style)
    width = net.dim(x, 2, spec.shape_style)
    if how in ("expand", "expand_where"):
        target = net.vector(b.B, spec.kv_heads, times, width, last)
        if how == "expand_where":  # TorchScript's guard for sizes of -1
            minus = net.op("Mul", net.op("ConstantOfShape", net.ints(5), value=one()), net.int0(-1))
            ones = net.op("ConstantOfShape", net.ints(5), value=one())
            target = net.op("Where", net.op("Equal", target, minus), ones, target)
        wide = net.op("Expand", net.unsqueeze(x, 2), target)
        return net.reshape_to(wide, b.B, spec.q_heads, width, last)
    if how == "expand_static":
        wide = net.op("Expand", net.unsqueeze(x, 2), net.ints(1, 1, times, 1, 1))
        return net.reshape_to(
            wide, 0, spec.q_heads, -1, spec.head if x in b.key_names else spec.value_head
        )
    if how == "tile":
        wide = net.op("Tile", net.unsqueeze(x, 2), net.ints(1, 1, times, 1, 1))
        return net.reshape_to(wide, b.B, spec.q_heads, width, last)
    if how == "concat":
        heads = net.split(x, [1] * spec.kv_heads, 1)
        return net.concat(*[h for h in heads for _ in range(times)], axis=1)
    if how == "interleave":
        heads = [
            net.op("Expand", h, net.ints(1, times, 1, 1))
            for h in net.split(x, [1] * spec.kv_heads, 1)
        ]
        return net.concat(*heads, axis=1)
    if how == "gather":
        return net.op("Gather", x, net.ints(*[i // times for i in range(spec.q_heads)]), axis=1)
    if how == "wrong_tile":  # h0 h1 h0 h1: a near miss
        return net.op("Tile", x, net.ints(1, times, 1, 1))
    raise ValueError(how)


def one():
    import onnx

    return onnx.numpy_helper.from_array(np.array([1], np.int64))


def to_bnsd(b, x, layout):
    perms = {"BNSD": None, "BNDS": (0, 1, 3, 2), "BSND": (0, 2, 1, 3), "SBND": (1, 2, 0, 3)}
    return x if perms[layout] is None else b.net.transpose(x, *perms[layout])


# ---- scale
def run_time_root(b, q):
    """sqrt(1/sqrt(D)) from the shape of the queries, as torchlib writes it."""
    net = b.net
    size = net.cast(
        net.squeeze(net.slice(net.op("Shape", q), -1, 9223372036854775807, 0), 0), b.spec.dtype
    )
    return net.op("Sqrt", net.op("Div", number(b, 1), net.op("Sqrt", size)))


def scale_operands(b, q, k):
    """Returns q, k and the scale that is left to be applied to the scores."""
    net, how, factor = b.net, b.spec.scale, b.scale
    if how in ("q_before", "q_linear"):
        return (q if how == "q_linear" else net.op("Mul", q, number(b, factor))), k, None
    if how == "k_before":
        return q, net.op("Mul", k, number(b, factor)), None
    if how == "both":
        root = number(b, np.sqrt(factor))
        return net.op("Mul", q, root), net.op("Mul", k, root), None
    if how == "both_div":
        root = number(b, 1 / np.sqrt(factor))
        return net.op("Div", q, root), net.op("Div", k, root), None
    if how == "run_time":
        root = run_time_root(b, q)
        return net.op("Mul", q, root), net.op("Mul", k, root), None
    if how == "none":
        return q, k, None
    return q, k, how


def scale_scores(b, scores, how, q):
    net = b.net
    if how == "after_mul":
        return net.op("Mul", scores, number(b, b.scale))
    if how == "after_mul_left":
        return net.op("Mul", number(b, b.scale), scores)
    if how == "after_div":
        return net.op("Div", scores, number(b, 1 / b.scale))
    if how == "after_pow":  # GPT-2: the head size from a shape, to the power of a half
        size = net.cast(
            net.squeeze(net.slice(net.op("Shape", q), -1, 9223372036854775807, 0), 0), "float32"
        )
        return net.op(
            "Div", scores, net.cast(net.op("Pow", size, number(b, 0.5, "float32")), b.spec.dtype)
        )
    raise ValueError(how)


# ---- scores
def products(b, q, k, layout):
    net, spec, how = b.net, b.spec, b.spec.qk
    if layout == "BNDS":
        return net.op("MatMul", q, repeat_columns(b, k))
    if layout == "BSND" and how == "fused" and spec.q_heads == spec.kv_heads:
        return net.op("MatMul", q, net.transpose(k, 0, 2, 3, 1))
    if layout == "BSND" and how == "einsum" and spec.q_heads == spec.kv_heads:
        rows = net.transpose(q, 0, 2, 1, 3)
        return net.op("Einsum", rows, k, equation="bqhd,bkhd->bhqk")
    k = repeat_heads(b, to_bnsd(b, k, layout))
    if how == "einsum":
        return net.op("Einsum", q, k, equation="bhqd,bhkd->bhqk")
    if how == "fused_matmul":
        factor, b.fused_scale = (b.scale, True) if spec.scale == "fused" else (1.0, False)
        return net.op("FusedMatMul", q, k, domain=MS, transB=1, alpha=float(factor))
    if how == "three":  # through a 3-D Transpose
        width, d = net.dim(k, 2, spec.shape_style), spec.head
        flat = net.transpose(net.reshape_to(k, -1, width, d), 0, 2, 1)
        count = spec.kv_heads if spec.repeat == "broadcast" else spec.q_heads
        return net.op("MatMul", q, net.reshape_to(flat, b.B, count, d, width))
    return net.op("MatMul", q, net.transpose(k, 0, 1, 3, 2))


def repeat_columns(b, k):
    """Grouped heads of a transposed key [B,Nk,D,W]."""
    net, spec, times = b.net, b.spec, b.spec.q_heads // b.spec.kv_heads
    if times == 1 or spec.repeat == "broadcast":
        return k
    width = net.dim(k, 3, spec.shape_style)
    wide = net.op("Expand", net.unsqueeze(k, 2), net.ints(1, 1, times, 1, 1))
    return net.reshape_to(wide, b.B, spec.q_heads, spec.head, width)


def weights(b, scores, layer):
    """Softmax and what stands around it."""
    net, spec = b.net, b.spec
    if spec.sinks:
        sink = net.op(
            "Expand",
            net.reshape(b.sinks[layer], 1, -1, 1, 1),
            net.vector(b.B, spec.q_heads, b.S, 1),
        )
        wide = net.concat(scores, sink, axis=-1)
        wide = net.op("Sub", wide, net.reduce("ReduceMax", wide, -1))
        return net.slice(net.op("Softmax", wide, axis=-1), 0, -1, 3)
    axis = 3 if spec.opset < 13 else -1
    if spec.softmax_cast:
        soft = net.cast(net.op("Softmax", net.cast(scores, "float32"), axis=axis), spec.dtype)
    else:
        soft = net.op("Softmax", scores, axis=axis)
    if spec.nan_guard:
        soft = net.op("Where", net.op("IsNaN", soft), number(b, 0), soft)
    if spec.dropout:
        rate = [net.const(0.0, "float32")] if spec.opset >= 12 else []
        attrs = {} if spec.opset >= 12 else {"ratio": 0.0}
        soft = net.op("Dropout", soft, *rate, **attrs)
    return soft


def masked(b, scores, steps):
    net = b.net
    for kind, *parts in steps:
        if kind == "add":
            scores = net.op("Add", scores, parts[0])
        else:
            scores = net.op("Where", parts[0], scores, parts[1])
    return scores


def attend(b, q, k, v, layouts, steps, layer, scale=None):
    """q [B,N,S,D]; k and v as the cache gives them. Returns [B,S,N*Dv]."""
    net, spec = b.net, b.spec
    b.scale = b.default_scale if scale is None else scale
    if k == v:
        raise ValueError("keys and values are one tensor")
    if spec.qk == "heads":
        return attend_by_head(b, q, k, v, layouts, steps)
    q, k, left = scale_operands(b, q, k)
    b.fused_scale = False
    scores = products(b, q, k, layouts[0])
    if left and left != "fused":
        scores = scale_scores(b, scores, left, q)
    if spec.softcap:
        cap = number(b, spec.softcap)
        scores = net.op("Mul", net.op("Tanh", net.op("Div", scores, cap)), cap)
    soft = weights(b, masked(b, scores, steps), layer)
    if layouts[1] == "BSND" and spec.qk == "einsum" and spec.q_heads == spec.kv_heads:
        mixed = net.op("Einsum", soft, v, equation="bhqk,bkhd->bqhd")
    else:
        mixed = net.op("MatMul", soft, repeat_heads(b, to_bnsd(b, v, layouts[1])))
        mixed = net.transpose(mixed, 0, 2, 1, 3)
    return net.reshape_to(mixed, b.B, b.S, spec.q_heads * spec.value_head)


def attend_by_head(b, q, k, v, layouts, steps):
    """One little attention per head, joined by a Concat."""
    net, spec = b.net, b.spec
    keys = net.split(to_bnsd(b, k, layouts[0]), [1] * spec.kv_heads, 1)
    values = net.split(to_bnsd(b, v, layouts[1]), [1] * spec.kv_heads, 1)
    outs = []
    for i, head in enumerate(net.split(q, [1] * spec.q_heads, 1)):
        j = i * spec.kv_heads // spec.q_heads
        scores = net.op("MatMul", head, net.transpose(keys[j], 0, 1, 3, 2))
        scores = masked(b, net.op("Mul", scores, number(b, b.scale)), steps)
        outs.append(net.op("MatMul", net.op("Softmax", scores, axis=-1), values[j]))
    mixed = net.transpose(net.concat(*outs, axis=1), 0, 2, 1, 3)
    return net.reshape_to(mixed, b.B, b.S, spec.q_heads * spec.value_head)


def operator(b, q, k, v, layouts, steps, layer, version=23):
    """ai.onnx Attention over 4-D operands with an explicit additive mask."""
    net, spec = b.net, b.spec
    k, v = to_bnsd(b, k, layouts[0]), to_bnsd(b, v, layouts[1])
    if spec.qk == "op_repeat":
        k, v = repeat_heads(b, k), repeat_heads(b, v)
    inputs, attrs = [q, k, v], {"scale": float(b.default_scale)}
    if steps:
        inputs.append(net.expand(steps[0][1], b.B, 1, b.S, b.W))
    elif spec.mask[0] == "op_causal":
        attrs["is_causal"] = 1
    if spec.softcap:
        attrs["softcap"] = spec.softcap
    out = net.op("Attention", *inputs, **attrs)
    return net.reshape_to(net.transpose(out, 0, 2, 1, 3), b.B, b.S, spec.q_heads * spec.value_head)

"""Mask builders. Each returns a list of steps that the attention applies to its scores in order:
("add", tensor) or ("select", keep, fill)."""

import numpy as np

from decoders.net import INT_MAX


def low_value(b):
    if b.spec.low == "inf":
        return -np.inf
    if b.spec.low == "ten_thousand":
        return -10000.0
    return np.finfo(b.spec.dtype).min


def low(b):
    return b.net.const(np.asarray(low_value(b), b.spec.dtype))


def zero(b):
    return b.net.const(np.asarray(0, b.spec.dtype))


def column(b, q):
    """Query positions as a column: [S,1] or [B,1,S,1]."""
    net = b.net
    if b.per_batch:
        return net.unsqueeze(q, 1, 3)
    return net.unsqueeze(q, 1)


def to4(b, mask):
    return mask if b.per_batch else b.net.unsqueeze(mask, 0, 1)


def causal(b, q=None, kv=None):
    return b.net.less_equal(kv or b.keys(), column(b, q or b.q()))


def in_window(b, q=None, kv=None):
    net = b.net
    return net.op(
        "Greater", kv or b.keys(), net.op("Sub", column(b, q or b.q()), net.int0(b.spec.window))
    )


def padding(b):
    """attention_mask as bool [B,1,1,W]."""
    net = b.net
    return net.unsqueeze(net.cast(b.mask(), "bool"), 1, 2)


def as_bias(b, keep):
    return [("add", b.net.op("Where", keep, zero(b), low(b)))]


# ---- M1: transformers before 4.38, and the genai builder's MHA path
def m1(b, layer, window=False):
    net, spec = b.net, b.spec
    square = net.op("Expand", low(b), net.concat(b.S, b.S, axis=0))
    steps = net.range(0, b.S)
    ahead = net.op("Less", steps, net.reshape(net.op("Add", steps, net.int0(1)), -1, 1))
    tri = net.op("Where", ahead, zero(b), square)
    past = net.op("Expand", zero(b), net.concat(b.S, b.P, axis=0))
    mask = net.expand(net.unsqueeze(net.concat(past, tri, axis=1), 0, 1), b.B, 1, b.S, b.T)
    if spec.mask_input:
        wide = net.expand(net.unsqueeze(net.unsqueeze(b.mask(), 1), 2), b.B, 1, b.S, b.T)
        inverted = net.op("Sub", net.const(np.asarray(1, spec.dtype)), net.cast(wide, spec.dtype))
        mask = net.op("Add", mask, net.op("Where", net.cast(inverted, "bool"), low(b), inverted))
    return [("add", mask)]


# ---- M2: transformers 4.38 to 4.52; the padding is written back by a ScatterND
def m2(b, layer, window=False, scatter=True):
    net, spec = b.net, b.spec
    mask = net.op("Expand", low(b), net.concat(b.S, b.W, axis=0))
    ahead = net.op("Greater", b.keys(), net.reshape(b.q(), -1, 1))
    if window:
        old = net.less_equal(
            b.keys(), net.op("Sub", net.reshape(b.q(), -1, 1), net.int0(spec.window))
        )
        ahead = net.op("Or", ahead, old)
    mask = net.op("Mul", mask, net.cast(ahead, spec.dtype))
    mask = net.expand(net.unsqueeze(mask, 0, 1), b.B, 1, b.S, b.W)
    if spec.mask_input:
        part = net.slice(mask, 0, net.dim(b.mask(), 1, spec.shape_style), 3)
        hidden = net.op("Add", part, net.cast(net.unsqueeze(b.mask(), 1, 2), spec.dtype))
        part = net.op(
            "Where",
            net.op("Equal", net.cast(hidden, "float32"), net.const(0, "float32")),
            low(b),
            part,
        )
        mask = write_mask(b, mask, part) if scatter else part
    return [("add", mask)]


def write_mask(b, mask, part):
    """mask[:, :, :, :T] = part, as TorchScript spells it: a ScatterND over full coordinates."""
    net = b.net
    counts = [b.B, net.ints(1), b.S, b.W]
    shapes = [(-1, 1, 1, 1), (-1, 1, 1), (-1, 1), (-1,)]
    axes = [net.reshape(net.range(0, n), *shape) for n, shape in zip(counts, shapes)]
    full = net.concat(*counts, axis=0)
    index = net.concat(
        *[net.unsqueeze(net.op("Expand", a, full), -1 if b.spec.opset >= 13 else 4) for a in axes],
        axis=-1
    )
    return net.op("ScatterND", mask, index, part)


def m2_sliding(b, layer):
    return m2(b, layer, window=True)


# ---- M3: transformers from 4.53 on; M4: with -inf, and guarded by IsNaN in the attention
def m3(b, layer, window=False, lookup=""):
    net = b.net
    keep = causal(b)
    if window:
        keep = net.op("And", keep, in_window(b))
    keep = to4(b, net.op("And", net.const(True, "bool"), keep))
    if b.spec.mask_input:
        keep = net.op("And", keep, LOOKUPS[lookup](b))
    return as_bias(b, keep)


def lookup_flat(b):
    """attention_mask[b, kv] through a flattened gather."""
    net = b.net
    wide = net.dim(b.mask(), 1, b.spec.shape_style)
    rows = net.op("Mul", net.unsqueeze(net.range(0, b.B), 1), wide)
    index = net.op("Add", rows, net.unsqueeze(b.keys(), 0))
    flat = net.reshape(net.cast(b.mask(), "bool"), -1)
    return net.unsqueeze(net.op("Gather", flat, index, axis=0), 1, 2)


def lookup_nd(b):
    net = b.net
    kv, rows = net.unsqueeze(b.keys(), 0), net.unsqueeze(net.range(0, b.B), 1)
    both = net.concat(b.B, b.W, axis=0)
    index = net.concat(*[net.unsqueeze(net.op("Expand", x, both), 2) for x in (rows, kv)], axis=2)
    return net.unsqueeze(net.op("GatherND", net.cast(b.mask(), "bool"), index), 1, 2)


LOOKUPS = {"": padding, "flat": lookup_flat, "nd": lookup_nd}


def m3_sliding(b, layer):
    return m3(b, layer, window=True)


# ---- M5: scaled_dot_product_attention(is_causal=True) decomposed: aligned top-left
def m5(b, layer):
    net = b.net
    ones = net.op("Expand", net.const(np.asarray(1, "float32")), net.concat(b.S, b.W, axis=0))
    lower = net.op("Trilu", ones, upper=0)
    hidden = net.op("Equal", lower, net.const(np.asarray(0, "float32")))
    return [("add", net.op("Where", hidden, net.const(np.asarray(-np.inf, b.spec.dtype)), zero(b)))]


# ---- M6: rows of a constant triangle
def m6(b, layer):
    net, m = b.net, b.longest
    table = net.table(np.tril(np.ones((1, 1, m, m), bool)), "bool")
    rows = net.op("Gather", table, b.q(), axis=2)
    return as_bias(b, net.slice(rows, 0, b.W, 3) if b.cache.reads_prefix else rows)


def m6_batch(b, layer):
    net, m = b.net, b.longest
    rows = net.op("Gather", net.table(np.tril(np.ones((m, m), bool)), "bool"), b.q(), axis=0)
    rows = net.unsqueeze(rows, 1)
    return as_bias(b, net.slice(rows, 0, b.W, 3) if b.cache.reads_prefix else rows)


# ---- M7: GPT-2's sliced triangle, applied by selection
def m7(b, layer, kind="bool"):
    net, m = b.net, b.longest
    table = net.table(np.tril(np.ones((1, 1, m, m), kind)), kind)
    rows = net.slice(table, net.op("Sub", b.T, b.S), b.T, 2)
    keep = net.cast(net.slice(rows, 0, b.T, 3), "bool")
    steps = [("select", keep, low(b))]
    if b.spec.mask_input:
        ones = net.cast(net.unsqueeze(b.mask(), 1, 2), b.spec.dtype)
        inverted = net.op("Sub", net.const(np.asarray(1, b.spec.dtype)), ones)
        steps.append(("add", net.op("Mul", inverted, low(b))))
    return steps


def m7_uint8(b, layer):
    return m7(b, layer, "uint8")


# ---- M8: a static bias from slots
def m8(b, layer, window=False):
    net = b.net
    query = column(b, b.q())
    keep = net.op("Not", net.op("Less", query, b.keys()))
    if window:
        keep = net.op(
            "And", keep, net.op("Less", net.op("Sub", query, b.keys()), net.int0(b.spec.window))
        )
    end = net.op("Add", b.start_column(), net.scalar(b.S))
    keep = net.op("And", keep, net.op("Less", b.keys(), end))
    return as_bias(b, to4(b, keep))


def m8_sliding(b, layer):
    return m8(b, layer, window=True)


# ---- M9: a mask input alone says which slots are valid
def m9(b, layer):
    return as_bias(b, padding(b))


# ---- M10: lengths from sums of the mask
def m10(b, layer):
    net = b.net
    total = net.reduce("ReduceSum", b.mask(), 1)
    last = net.cast(net.op("Sub", total, net.const([1], b.spec.ids_dtype)), "int32")
    valid = net.less_equal(net.cast(b.keys(), "int32"), last)
    return as_bias(b, net.op("And", to4(b, causal(b)), net.unsqueeze(valid, 1, 2)))


# ---- masks of the host
def host_float(b, layer):
    return [("add", b.host("attention_bias", b.host_mask_kind))]


def host_bool(b, layer):
    return as_bias(b, b.host("attention_allowed", b.host_mask_kind))


def host_select(b, layer):
    keep = b.host("attention_allowed", b.host_mask_kind)
    return [("select", keep, low(b))]


def prefix(b, layer):
    """The first tokens see each other in both directions."""
    net = b.net
    keep = net.op("Or", causal(b), net.op("Less", b.keys(), net.int0(2)))
    return as_bias(b, to4(b, keep))


def blocks(b, layer, hide_pads=True):
    """Keys of the query's own block of positions (chunked attention)."""
    net = b.net
    size = net.int0(b.spec.window)
    own = net.op("Equal", net.op("Div", b.keys(), size), net.op("Div", column(b, b.q()), size))
    keep = to4(b, net.op("And", causal(b), own))
    return as_bias(b, net.op("And", keep, padding(b)) if b.spec.mask_input and hide_pads else keep)


def dilated(b, layer):
    """Every second key behind the query."""
    net = b.net
    gap = net.op("Sub", column(b, b.q()), b.keys())
    even = net.op("Equal", net.op("Mod", net.op("Abs", gap), net.int0(2)), net.int0(0))
    return as_bias(b, to4(b, net.op("And", causal(b), even)))


def first_and_window(b, layer):
    """A window, and the very first tokens always."""
    net = b.net
    near = net.op("Or", in_window(b), net.op("Less", b.keys(), net.int0(2)))
    return as_bias(b, to4(b, net.op("And", causal(b), near)))


def host_fifo(b, layer):
    """Which slots of a shifting buffer are valid."""
    return [("add", b.host("attention_bias", "mask_fifo"))]


def host_window(b, layer):
    """Past slots, then the new token in the last column."""
    return [("add", b.host("attention_bias", "mask_window31"))]


def strict(b, layer):
    """Near miss: a query does not see itself; without any key the first one sees the average."""
    return as_bias(b, to4(b, b.net.op("Less", b.keys(), column(b, b.q()))))


def ahead(b, layer):
    """Near miss: a query sees one token ahead."""
    net = b.net
    return as_bias(
        b, to4(b, net.less_equal(b.keys(), net.op("Add", column(b, b.q()), net.int0(1))))
    )


def random_bias(b, layer):
    """A learned bias table over absolute places."""
    net, m = b.net, b.longest
    table = net.table(net.rng.standard_normal((m, m)))
    rows = net.op("Gather", table, b.q(), axis=0)
    rows = to4(b, net.unsqueeze(rows, 1) if b.per_batch else rows)
    rows = net.slice(rows, 0, b.W, 3) if b.growing or b.cache.reads_prefix else rows
    return [("add", rows), *as_bias(b, to4(b, causal(b)))]


def clipped(b, layer):
    """A buffer that holds the last M tokens: all slots once it is full."""
    net = b.net
    last = net.op("Min", column(b, b.q()), net.int0(b.spec.capacity - 1))
    return as_bias(b, to4(b, net.less_equal(b.keys(), last)))


def backwards(b, layer):
    """A buffer that is filled from its end."""
    net = b.net
    first = net.op("Sub", net.int0(b.spec.capacity - 1), column(b, b.q()))
    return as_bias(b, to4(b, net.less_equal(first, b.keys())))


def none(b, layer):
    return []


def trilu(b, layer):
    """A triangle of T by T by Trilu, its last S rows."""
    net = b.net
    full = net.op("Expand", low(b), net.concat(b.T, b.T, axis=0))
    upper = net.op("Trilu", full, net.int0(1), upper=1)
    return [("add", net.unsqueeze(net.slice(upper, b.P, INT_MAX, 0), 0, 1))]


def trilu_shifted(b, layer):
    """Trilu of [S,T] with k = P + 1."""
    net = b.net
    full = net.op("Expand", low(b), net.concat(b.S, b.T, axis=0))
    shift = net.scalar(net.op("Add", b.P, net.ints(1)))
    return [("add", net.unsqueeze(net.op("Trilu", full, shift, upper=1), 0, 1))]


def kept_window(b, layer):
    """A layer whose past holds the last W-1 rows only: its keys start at T minus their number."""
    net = b.net
    past, axis = b.cache.inputs[layer, "key"]
    wide = net.op("Add", net.dim(past, axis, b.spec.shape_style), b.S)
    first = net.op("Sub", b.T, wide)
    kv = net.op("Add", net.range(0, wide), first)
    keep = to4(b, net.op("And", causal(b, kv=kv), in_window(b, kv=kv)))
    if b.spec.mask_input:
        mask = net.unsqueeze(net.cast(b.mask(), "bool"), 1, 2) if b.spec.opset >= 13 else padding(b)
        keep = net.op("And", keep, net.slice(mask, first, b.T, 3))
    return as_bias(b, keep)


MASKS = {
    "kept_window": kept_window,
    "M1": m1,
    "M2": m2,
    "M2_sliding": m2_sliding,
    "M3": m3,
    "M3_flat": lambda b, i: m3(b, i, lookup="flat"),
    "M3_nd": lambda b, i: m3(b, i, lookup="nd"),
    "M3_sliding": m3_sliding,
    "M5": m5,
    "M6": m6,
    "M6_batch": m6_batch,
    "M7": m7,
    "M7_uint8": m7_uint8,
    "M8": m8,
    "M8_sliding": m8_sliding,
    "M9": m9,
    "M10": m10,
    "host_float": host_float,
    "host_bool": host_bool,
    "host_select": host_select,
    "prefix": prefix,
    "blocks": blocks,
    "blocks_open": lambda b, i: blocks(b, i, hide_pads=False),
    "dilated": dilated,
    "first_and_window": first_and_window,
    "none": none,
    "host_fifo": host_fifo,
    "host_window": host_window,
    "strict": strict,
    "ahead": ahead,
    "random_bias": random_bias,
    "clipped": clipped,
    "backwards": backwards,
    "trilu": trilu,
    "trilu_shifted": trilu_shifted,
}
# Masks that read attention_mask if the decoder has one; the others must not have the input.
READS_INPUT = {
    "M1",
    "M2",
    "M2_sliding",
    "M3",
    "M3_flat",
    "M3_nd",
    "M3_sliding",
    "kept_window",
    "blocks",
    "M7",
    "M7_uint8",
    "M9",
    "M10",
}
NEEDS_INPUT = {"M3_flat", "M3_nd", "M9", "M10"}

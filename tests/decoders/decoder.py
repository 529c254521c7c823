"""Assembles a decoder from a Spec: embedding, layers, logits, and what the host has to feed."""

import numpy as np

from decoders import attention, positions
from decoders.biases import BIASES
from decoders.fixed import FIXED
from decoders.fused import FUSED
from decoders.masks import MASKS, NEEDS_INPUT, READS_INPUT
from decoders.misses import MISSES
from decoders.net import Net
from decoders.packing import GROWING

PER_BATCH = ("start_b", "start_b1", "pos_bs")


class Build:
    def __init__(self, spec):
        self.spec = spec
        self.net = Net(spec.opset, spec.dtype, spec.seed, spec.constants)
        self.feeds, self.caches, self.presents, self.extras = {}, [], [], []
        self.key_names, self.memo, self.rope_tables = set(), {}, None
        self.cache = {**GROWING, **FIXED, **FUSED, **MISSES}[spec.cache](self)
        self.growing = self.cache.growing
        self.per_batch = not self.growing and spec.position_input in PER_BATCH
        self.longest = 64 if self.growing else spec.capacity
        self.default_scale = spec.head**-0.5
        self.position_dtype = "int64"
        self.prefix, self.consts = "", {}

    # ---- names of dimensions
    def symbol(self, d, where):
        spec = self.spec
        if isinstance(d, int):
            return d
        if d == "B" and spec.batch:
            return spec.batch
        if d == "BN" and spec.batch:
            return spec.batch * spec.kv_heads
        if d == "S" and spec.tokens:
            return spec.tokens
        if self.prefix and d in ("P", "T"):
            d = self.prefix + d
        if spec.symbols == "independent":
            return self.memo.setdefault(("dim", where, d), f"s{11 + 7 * len(self.memo)}")
        if spec.symbols == "formula":
            names = {"B": "batch_size", "S": "sequence_length", "P": "past_sequence_length"}
            return names.get(d, "past_sequence_length + sequence_length" if d == "T" else d)
        return d

    def host(self, name, kind):
        """Declares an input of the host on first use."""
        if name not in self.feeds:
            spec, t = self.spec, (
                "T" if self.growing or self.cache.reads_prefix else self.spec.capacity
            )
            dims, dtype = {
                "ids": (["B", "S"], spec.ids_dtype),
                "embeds": (["B", "S", spec.hidden], spec.dtype),
                "pos_bs": (["B", "S"], spec.ids_dtype),
                "pos_3bs": ([3, "B", "S"], spec.ids_dtype),
                "pos_s": (["S"], spec.ids_dtype),
                "pos_1s": ([1, "S"], spec.ids_dtype),
                "start": ([], spec.ids_dtype),
                "start1": ([1], spec.ids_dtype),
                "start_b": (["B"], spec.ids_dtype),
                "start_b1": (["B", 1], spec.ids_dtype),
                "mask_bt": (["B", "T"], spec.ids_dtype),
                "count_bt": (["B", "T"], spec.ids_dtype),
                "mask_bm": (["B", t], spec.ids_dtype),
                "mask_b1st": (["B", 1, "S", "T"], spec.dtype),
                "mask_b1sm": (["B", 1, "S", t], spec.dtype),
                "mask_fifo": (["B", 1, 1, t], spec.dtype),
                "mask_window31": (["B", 1, 1, spec.capacity + 1], spec.dtype),
                "total_b": (["B"], "int32"),
                "beam": (["B"], "int32"),
                "total": ([], "int64"),
            }[kind]
            if name == "attention_allowed":
                dtype = "bool"
            self.net.input(name, dtype, [self.symbol(d, name) for d in dims])
            self.feeds[name] = kind
        return name

    def once(self, key, make):
        if key not in self.memo:
            self.memo[key] = make()
        return self.memo[key]

    @property
    def host_mask_kind(self):
        return "mask_b1st" if self.growing or self.cache.reads_prefix else "mask_b1sm"

    def mask(self):
        return self.host(
            "attention_mask", "mask_bt" if self.growing or self.cache.reads_prefix else "mask_bm"
        )

    # ---- lengths, each an int64 [1]
    @property
    def B(self):
        return self.once("B", lambda: self.net.dim(self.tokens, 0, self.spec.shape_style))

    @property
    def S(self):
        return self.once("S", lambda: self.net.dim(self.tokens, 1, self.spec.shape_style))

    @property
    def P(self):
        return self.once("P", self.past_length)

    @property
    def T(self):
        return self.once("T", lambda: self.net.op("Add", self.P, self.S))

    @property
    def W(self):
        """How many keys attention sees."""
        if self.growing or self.cache.reads_prefix:
            return self.T
        return self.net.ints(self.spec.capacity)

    def past_length(self):
        spec, net = self.spec, self.net
        if not self.growing:
            return self.first_position()
        if spec.length_from == "mask":
            return net.op("Sub", net.dim(self.mask(), 1, spec.shape_style), self.S)
        if spec.length_from == "position":
            return self.length_by_position()
        return self.cache.length()

    def length_by_position(self):
        net = self.net
        at = net.reshape(net.cast(self.host("position_ids", "pos_bs"), "int64"), -1)
        return net.op("Gather", at, net.ints(0), axis=0)

    def first_position(self):
        """The start slot as [1]; no meaning where sequences differ."""
        net, how = self.net, self.spec.position_input
        at = self.position_value()
        if how == "start":
            return net.unsqueeze(at, 0)
        if how == "start1":
            return at
        if how == "pos_s":
            return net.slice(at, 0, 1, 0)
        if how == "pos_1s":
            return net.slice(net.reshape(at, -1), 0, 1, 0)
        raise ValueError("the sequences have starts of their own")

    def position_value(self):
        """The host's position input of a fixed cache, as int64."""
        net, how = self.net, self.spec.position_input
        name = {"pos_s": "cache_position", "pos_bs": "position_ids", "pos_1s": "position_ids"}.get(
            how, "start_pos"
        )
        value = self.host(name, how)
        return (
            value
            if self.spec.ids_dtype == "int64"
            else self.once("pos64", lambda: net.cast(value, "int64"))
        )

    def start_column(self):
        """Start slots that broadcast against [.,1,S,W]."""
        if not self.per_batch:
            return self.P
        return self.once("start4", lambda: self.net.unsqueeze(self.starts(), 1, 2, 3))

    def starts(self):
        """Start slots as [B]."""
        net, how = self.net, self.spec.position_input
        if how == "start_b":
            return self.position_value()
        if how == "start_b1":
            return net.squeeze(self.position_value(), 1)
        if how == "pos_bs":
            return net.squeeze(net.slice(self.position_value(), 0, 1, 1), 1)
        return net.op("Expand", self.P, self.B)

    def q(self):
        """Positions of the queries: [S], or [B,S] where sequences differ."""
        return self.once("q", self.query_positions)

    def query_positions(self):
        net, how = self.net, self.spec.position_input
        if self.growing:
            return net.range(self.P, self.T)
        if how in ("pos_s", "pos_bs"):
            return self.position_value()
        if how == "pos_1s":
            return net.squeeze(self.position_value(), 0)
        if how in ("start_b", "start_b1"):
            return net.op(
                "Add", net.unsqueeze(self.starts(), 1), net.unsqueeze(net.range(0, self.S), 0)
            )
        return net.op("Add", net.range(0, self.S), self.scalar_start())

    def scalar_start(self):
        return (
            self.position_value()
            if self.spec.position_input == "start"
            else self.net.scalar(self.P)
        )

    def keys(self):
        """0..W-1."""
        if self.growing or self.cache.reads_prefix:
            return self.once("kv", lambda: self.net.range(0, self.W))
        return self.net.const(np.arange(self.spec.capacity), "int64")

    # ---- positions of the embedding
    def open_positions(self):
        spec, net = self.spec, self.net
        self.batched_positions = self.per_batch
        if not self.growing:
            self.positions = self.q()
            return
        if spec.position_input in ("ids", "ids3"):
            kind = "pos_bs" if spec.position_input == "ids" else "pos_3bs"
            self.positions = self.host("position_ids", kind)
            self.position_dtype = spec.ids_dtype
            if kind == "pos_3bs":
                self.positions = net.op("Gather", self.positions, net.int0(0), axis=0)
            self.batched_positions = True
        elif spec.position_input == "mask":
            count = net.op(
                "Sub", net.op("CumSum", self.mask(), net.int0(1)), net.const(1, spec.ids_dtype)
            )
            self.positions = net.slice(count, self.P, 9223372036854775807, 1)
            self.position_dtype = spec.ids_dtype
            self.batched_positions = True
        elif spec.positions != "none":
            self.positions = self.q()

    def op_tables(self):
        """cos and sin [B,S,D/2] for RotaryEmbedding-23."""

        def make():
            angle = positions.angles(self, self.spec.head)
            if not self.batched_positions:
                angle = self.net.expand(
                    self.net.unsqueeze(angle, 0), self.B, self.S, self.spec.head // 2
                )
            return [self.net.op("Cos", angle), self.net.op("Sin", angle)]

        return self.once("tables", make)

    # ---- layers
    def norm(self, x):
        net, spec = self.net, self.spec
        gain = net.table(1 + 0.1 * net.rng.standard_normal(spec.hidden))
        if spec.norm == "layer" and spec.opset >= 17:
            return net.op(
                "LayerNormalization",
                x,
                gain,
                net.table(np.zeros(spec.hidden)),
                axis=-1,
                epsilon=1e-5,
            )
        if spec.norm == "fused_rms":
            return net.op("RMSNormalization", x, gain, axis=-1, epsilon=1e-5)
        wide = net.cast(x, "float32") if spec.dtype != "float32" else x
        square = net.op("Pow", wide, net.const(2.0, "float32"))
        root = net.op("Sqrt", net.op("Add", net.mean(square, -1), net.const(1e-5, "float32")))
        out = net.op("Div", wide, root)
        return net.op("Mul", net.cast(out, spec.dtype) if spec.dtype != "float32" else out, gain)

    def linear(self, x, size_in, size_out, bias=False, gain=1.0):
        net = self.net
        out = net.op("MatMul", x, net.weight(size_in, size_out, gain=gain))
        return net.op("Add", out, net.weight(size_out, gain=0.1)) if bias else out

    def heads(self, x, count, size, rotate=False):
        """[B,S,count*size] -> [B,count,S,size], normalised and rotated as the model does."""
        net, spec = self.net, self.spec
        x = net.reshape_to(x, self.B, self.S, count, size)
        if rotate and spec.qk_norm == "before":
            x = self.head_norm(x, size)
        x = net.transpose(x, 0, 2, 1, 3)
        if rotate and spec.qk_norm == "after":
            x = self.head_norm(x, size)
        return positions.rope(self, x) if rotate and spec.positions.startswith("rope") else x

    def head_norm(self, x, size):
        net = self.net
        root = net.op("Sqrt", net.op("Add", net.mean(net.op("Mul", x, x), -1), net.const(1e-5)))
        return net.op(
            "Mul", net.op("Div", x, root), net.table(2 + 0.1 * net.rng.standard_normal(size))
        )

    def layer(self, x, i):
        net, spec = self.net, self.spec
        h = self.norm(x)
        q = self.linear(
            h,
            spec.hidden,
            spec.q_heads * spec.head,
            spec.norm == "layer",
            0.5 if spec.scale == "none" else 1.5,
        )
        if spec.scale == "q_linear":
            q = net.op("Mul", q, net.const(self.default_scale))
        q = self.heads(q, spec.q_heads, spec.head, True)
        if spec.scale == "none":
            self.default_scale = 1.0
        steps = self.steps(i)
        k = self.linear(h, spec.hidden, spec.kv_heads * spec.head, gain=1.5)
        k = self.heads(k, spec.kv_heads, spec.head, True)
        v = self.linear(h, spec.hidden, spec.kv_heads * spec.value_head)
        v = self.heads(v, spec.kv_heads, spec.value_head)
        if hasattr(self.cache, "attend"):
            out = self.cache.attend(i, q, k, v, steps)
        else:
            keys, values, layouts = self.cache.update(i, k, v)
            self.key_names.add(keys)
            if spec.qk in ("op", "op_repeat"):
                out = attention.operator(self, q, keys, values, layouts, steps, i)
            else:
                out = attention.attend(self, q, keys, values, layouts, steps, i)
        for extra in self.extras:
            out = net.op("Add", out, extra)
        self.extras.clear()
        x = net.op(
            "Add", x, self.linear(out, spec.q_heads * spec.value_head, spec.hidden, gain=1.5)
        )
        if spec.cross:
            x = net.op("Add", x, self.cross_attention(self.norm(x), i))
        h = self.linear(self.norm(x), spec.hidden, 2 * spec.hidden)
        h = net.op("Mul", h, net.op("Sigmoid", h))
        return net.op("Add", x, self.linear(h, 2 * spec.hidden, spec.hidden))

    def cross_attention(self, h, i):
        """Attention over keys and values of an encoder, which no step changes."""
        net, spec, n, d = self.net, self.spec, self.spec.q_heads, self.spec.head
        pair = []
        for role in ("key", "value"):
            name = f"past_key_values.{i}.encoder.{role}"
            net.input(name, spec.dtype, [self.symbol("B", name), n, "E", d])
            self.feeds[name] = "const:" + name
            self.consts[name] = net.rng.standard_normal((2, n, 7, d)).astype(spec.dtype)
            pair.append(name)
            if spec.cross == "present":
                dims = [self.symbol("B", name), n, "E", d]
                self.presents.append((name, f"present.{i}.encoder.{role}", spec.dtype, dims))
        q = self.linear(h, spec.hidden, n * d, gain=1.5)
        q = net.transpose(net.reshape_to(q, self.B, self.S, n, d), 0, 2, 1, 3)
        scores = net.op("MatMul", q, net.transpose(pair[0], 0, 1, 3, 2))
        scores = net.op("Mul", scores, net.const(d**-0.5))
        out = net.transpose(
            net.op("MatMul", net.op("Softmax", scores, axis=3), pair[1]), 0, 2, 1, 3
        )
        return self.linear(net.reshape_to(out, self.B, self.S, n * d), n * d, spec.hidden)

    def routed(self, x):
        """Weights of the two largest experts, scattered into zeros as routers do."""
        net, spec = self.net, self.spec
        score = net.op("Softmax", self.linear(x, spec.vocab, 4), axis=-1)
        best, index = net.op("TopK", score, net.ints(2), n=2, axis=-1)
        zeros = net.op("ConstantOfShape", net.op("Shape", score))
        gates = net.op("ScatterElements", zeros, index, best, axis=2)
        return net.op("Add", x, self.linear(gates, 4, spec.vocab))

    def steps(self, i):
        """What hides keys from queries in layer i, and the bias in front of it."""
        spec, kind = self.spec, self.spec.mask[i % len(self.spec.mask)]
        steps = []
        if spec.bias:
            steps.append(("add", self.once("bias", lambda: BIASES[spec.bias](self))))
        if kind == "op_causal":
            return steps
        return steps + self.once(
            ("mask", kind, i if kind == "kept_window" else 0), lambda: MASKS[kind](self, i)
        )

    def model(self):
        spec, net = self.spec, self.net
        kinds = set(spec.mask)
        in_operator = spec.cache.startswith("O2") or "raw_mask" in spec.features
        reads = kinds & READS_INPUT or spec.bias == "alibi_mask" or in_operator
        if spec.mask_input and not reads:
            raise ValueError(f"{kinds} read no attention_mask")
        if not spec.mask_input and kinds & NEEDS_INPUT:
            raise ValueError(f"{kinds} need attention_mask")
        embeds = spec.ids == "inputs_embeds"
        self.tokens = self.host(spec.ids, "embeds" if embeds else "ids")
        for i in range(spec.layers):
            self.cache.open(i)
        if hasattr(self.cache, "ready"):
            self.cache.ready()
        self.open_positions()
        if spec.bias.startswith("t5"):
            self.bias_table = net.weight(8, spec.q_heads, gain=2.0)
        self.sinks = [net.weight(spec.q_heads) for _ in range(spec.layers)] if spec.sinks else []
        x = (
            self.tokens
            if embeds
            else net.op(
                "Gather",
                net.table(net.rng.standard_normal((spec.vocab, spec.hidden))),
                self.tokens,
                axis=0,
            )
        )
        if spec.positions.startswith("learned"):
            x = net.op("Add", x, positions.learned(self))
        for i in range(spec.layers):
            x = self.layer(x, i)
        logits = self.linear(self.norm(x), spec.hidden, spec.vocab, gain=1.5)
        if "moe" in spec.features:
            logits = self.routed(logits)
        net.output(
            logits, "logits", spec.dtype, [self.symbol(d, "logits") for d in ("B", "S", spec.vocab)]
        )
        for value, name, dtype, dims in self.presents:
            net.output(value, name, dtype, dims)
        return net.model()

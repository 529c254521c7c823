"""Operators that carry past and present themselves, and attention operators behind a cache."""

import numpy as np

from decoders.attention import MS, repeat_heads
from decoders.fixed import Fixed
from decoders.growing import Growing, Plain


def flat(b, x, count, size):
    """[B,count,S,size] -> [B,S,count*size]."""
    net = b.net
    return net.reshape_to(net.transpose(x, 0, 2, 1, 3), 0, 0, count * size)


def added(b, steps):
    """All masks as one addend [.,.,S,T], or nothing."""
    total = ""
    for kind, *parts in steps:
        assert kind == "add"
        total = b.net.op("Add", total, parts[0]) if total else parts[0]
    return total


class MergedHeads(Plain):
    """C3: heads repeated behind the Concat, then MultiHeadAttention without a past."""

    def attend(self, layer, q, k, v, steps):
        b, net, s = self.b, self.net, self.spec
        keys, values, _ = super().update(layer, k, v)
        keys, values = [flat(b, repeat_heads(b, x), s.q_heads, s.head) for x in (keys, values)]
        bias = net.op("Tile", added(b, steps), net.ints(1, s.q_heads, 1, 1)) if steps else ""
        return net.op(
            "MultiHeadAttention",
            flat(b, q, s.q_heads, s.head),
            keys,
            values,
            "",
            "",
            bias,
            domain=MS,
            num_heads=s.q_heads,
            scale=float(b.default_scale),
        )


class AttentionPast(Plain):
    """O1: ai.onnx Attention with past_key and past_value."""

    def attend(self, layer, q, k, v, steps):
        b, net, s = self.b, self.net, self.spec
        past = [self.inputs[layer, r][0] for r in ("key", "value")]
        bias = net.expand(added(b, steps), b.B, 1, b.S, b.T) if steps else ""
        attrs = {} if steps else {"is_causal": 1}
        if s.softcap:
            attrs["softcap"] = s.softcap
        out, pk, pv = net.op(
            "Attention", q, k, v, bias, *past, n=3, scale=float(b.default_scale), **attrs
        )
        for value, role in ((pk, "key"), (pv, "value")):
            self.present(value, layer, role, self.shape("BNSD", role))
        return flat(b, out, s.q_heads, s.value_head)


class MultiHeadPast(Plain):
    """O3: com.microsoft MultiHeadAttention with past and present."""

    def attend(self, layer, q, k, v, steps):
        b, net, s = self.b, self.net, self.spec
        past = [self.inputs[layer, r][0] for r in ("key", "value")]
        bias = net.expand(added(b, steps), b.B, s.q_heads, b.S, b.T) if steps else ""
        attrs = {} if steps else {"unidirectional": 1}
        new = [flat(b, x, s.kv_heads, s.head) for x in (k, v)]
        out, pk, pv = net.op(
            "MultiHeadAttention",
            flat(b, q, s.q_heads, s.head),
            *new,
            "",
            "",
            bias,
            *past,
            n=3,
            domain=MS,
            num_heads=s.q_heads,
            scale=float(b.default_scale),
            **attrs,
        )
        for value, role in ((pk, "key"), (pv, "value")):
            self.present(value, layer, role, self.shape("BNSD", role))
        return out


def group_query(b, layer, q, k, v, past):
    """com.microsoft GroupQueryAttention; lengths from the attention mask."""
    net, s = b.net, b.spec

    def lengths():
        total = net.reduce("ReduceSum", b.mask(), 1, keepdims=0 if "flat" in s.features else 1)
        last = net.cast(
            net.op("Sub", total, net.const(1 if "flat" in s.features else [1], s.ids_dtype)),
            "int32",
        )
        wide = net.op("Gather", net.op("Shape", b.mask()), net.int0(1), axis=0)
        return last, net.cast(wide, "int32")

    last, total = b.once("gqa", lengths)
    attrs = {"num_heads": s.q_heads, "kv_num_heads": s.kv_heads, "scale": float(b.default_scale)}
    if s.softcap:
        attrs["softcap"] = s.softcap
    if "local" in s.features:
        attrs["local_window_size"] = s.window
    tables = []
    if "rotary" in s.features:
        grid = np.arange(b.longest)[:, None] * 10000.0 ** (-np.arange(0, s.head, 2) / s.head)[None]
        tables = b.once("gqa_tables", lambda: [net.table(f(grid)) for f in (np.cos, np.sin)])
        attrs["do_rotary"] = 1
    new = [
        flat(b, q, s.q_heads, s.head),
        flat(b, k, s.kv_heads, s.head),
        flat(b, v, s.kv_heads, s.head),
    ]
    if "packed" in s.features:
        new = [net.concat(*new, axis=2), "", ""]
    return net.op("GroupQueryAttention", *new, *past, last, total, *tables, n=3, domain=MS, **attrs)


class GroupQuery(Plain):
    """O2 with a past that grows."""

    def attend(self, layer, q, k, v, steps):
        out, *presents = group_query(
            self.b, layer, q, k, v, [self.inputs[layer, r][0] for r in ("key", "value")]
        )
        for value, role in zip(presents, ("key", "value")):
            self.present(value, layer, role, self.shape("BNSD", role))
        return out


class GroupQueryShared(Fixed):
    """O2 over buffers of a fixed capacity."""

    reads_prefix = True  # the mask input is T wide

    def attend(self, layer, q, k, v, steps):
        b = self.b
        b.host("attention_mask", "count_bt")
        out, *presents = group_query(
            b, layer, q, k, v, [self.inputs[layer, r] for r in ("key", "value")]
        )
        for value, role in zip(presents, ("key", "value")):
            name = self.inputs[layer, role]
            b.presents.append(
                (
                    value,
                    f"{name}_out",
                    self.spec.dtype,
                    [b.symbol(d, name) for d in self.shape("BNSD", role)],
                )
            )
        return out


class StackedAttention(Growing):
    """O4: com.microsoft Attention: projections, past and present [2,B,N,P,D] in one operator."""

    def open(self, layer):
        self.declare(layer, "key_value", [2, "B", self.spec.q_heads, "P", self.spec.head], 3)

    def attend(self, layer, q, k, v, steps):
        b, net, s = self.b, self.net, self.spec
        size = s.q_heads * s.head
        x = flat(b, q, s.q_heads, s.head)
        out, present = net.op(
            "Attention",
            x,
            net.weight(size, 3 * size, gain=1.5),
            net.weight(3 * size, gain=0.1),
            net.cast(b.mask(), "int32") if "raw_mask" in s.features else "",
            self.inputs[layer, "key_value"][0],
            n=2,
            domain=MS,
            num_heads=s.q_heads,
            unidirectional=1,
        )
        self.present(present, layer, "key_value", [2, "B", s.q_heads, "P", s.head])
        return out


class PreSliced(Plain):
    """C4: only the valid part of a longer past is read, of a length that the host gives."""

    def append(self, past, new, axis):
        b, net = self.b, self.net
        end = b.once(
            "valid", lambda: net.op("Sub", net.unsqueeze(b.host("total_length", "total"), 0), b.S)
        )
        return net.concat(net.slice(past, 0, end, axis), new, axis=axis)


class Hybrid(Plain):
    """O7: odd layers keep the state of a short convolution instead of keys and values."""

    taps = 4

    def open(self, layer):
        if layer % 2 == 0:
            return super().open(layer)
        b, s, name = self.b, self.spec, f"past_conv.{layer}"
        size = s.kv_heads * s.head
        self.net.input(name, s.dtype, [b.symbol("B", name), size, self.taps - 1])
        b.caches.append(
            {
                "input": name,
                "output": f"present_conv.{layer}",
                "layer": layer,
                "role": "state",
                "axis": 2,
                "init": [s.batch or "B", size, self.taps - 1],
            }
        )
        self.inputs[layer, "state"] = (name, 2)
        return None

    def update(self, layer, k, v):
        if layer % 2 == 0:
            self.last = super().update(layer, k, v)
            return self.last
        raise ValueError("no keys in this layer")

    def attend(self, layer, q, k, v, steps):
        from decoders import attention

        b, net, s = self.b, self.net, self.spec
        if layer % 2 == 0:
            keys, values, layouts = self.update(layer, k, v)
            return attention.attend(b, q, keys, values, layouts, steps, layer)
        name, size = self.inputs[layer, "state"][0], s.kv_heads * s.head
        new = net.transpose(flat(b, v, s.kv_heads, s.head), 0, 2, 1)
        full = net.concat(name, new, axis=2)
        b.presents.append(
            (
                net.slice(full, 1 - self.taps, 9223372036854775807, 2),
                f"present_conv.{layer}",
                s.dtype,
                [b.symbol("B", name), size, self.taps - 1],
            )
        )
        kernel = net.table(net.rng.standard_normal((size, 1, self.taps)) * 0.5)
        mixed = net.transpose(net.op("Conv", full, kernel, group=size), 0, 2, 1)
        return net.concat(*[mixed] * (s.q_heads // s.kv_heads), axis=2)


class PrefillOnly(Growing):
    """False positive: presents come out, no past goes in."""

    def open(self, layer):
        pass

    def length(self):
        return self.net.ints(0)

    def update(self, layer, k, v):
        for role, new in (("key", k), ("value", v)):
            self.b.presents.append(
                (
                    new,
                    f"present.{layer}.{role}",
                    self.spec.dtype,
                    [
                        self.b.symbol(d, "present")
                        for d in ("B", self.spec.kv_heads, "S", self.spec.head)
                    ],
                )
            )
        return k, v, ("BNSD", "BNSD")


class NoCache(PrefillOnly):
    """False positive: an encoder or a prefill without any cache."""

    def update(self, layer, k, v):
        return k, v, ("BNSD", "BNSD")


class Recurrent(PrefillOnly):
    """False positive: a state is handed on, but it is no cache of tokens."""

    def open(self, layer):
        b, name = self.b, f"past_state.{layer}"
        self.net.input(name, self.spec.dtype, [b.symbol("B", name), self.spec.hidden])
        b.caches.append(
            {
                "input": name,
                "output": f"present_state.{layer}",
                "layer": layer,
                "role": "state",
                "axis": 1,
                "init": ["B", self.spec.hidden],
            }
        )

    def update(self, layer, k, v):
        net, b = self.net, self.b
        name = f"past_state.{layer}"
        seen = net.reduce(
            "ReduceSum", flat(b, v, self.spec.kv_heads, self.spec.head), 1, keepdims=0
        )
        seen = net.op(
            "MatMul",
            seen,
            net.weight(self.spec.kv_heads * self.spec.head, self.spec.hidden, gain=0.2),
        )
        state = net.op("Add", net.op("Mul", name, net.const(0.9)), seen)
        b.presents.append(
            (
                state,
                f"present_state.{layer}",
                self.spec.dtype,
                [b.symbol("B", name), self.spec.hidden],
            )
        )
        b.extras.append(
            net.op(
                "MatMul",
                net.unsqueeze(state, 1),
                net.weight(self.spec.hidden, self.spec.q_heads * self.spec.value_head),
            )
        )
        return k, v, ("BNSD", "BNSD")


FUSED = {
    "C3": MergedHeads,
    "C4": PreSliced,
    "O1": AttentionPast,
    "O2": GroupQuery,
    "O2_shared": GroupQueryShared,
    "O3": MultiHeadPast,
    "O4": StackedAttention,
    "O7": Hybrid,
    "prefill": PrefillOnly,
    "no_cache": NoCache,
    "recurrent": Recurrent,
}

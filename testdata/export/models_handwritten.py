"""Models: a hand-written decoder with the usual fixed-capacity cache idioms."""
import os
from registry import fixture

SINGLE = [1, 1, 1, 1, 1, 1]


def _toy(out, cls_kw, make, names, outs_dyn, dynamo, opset, feeds, patterns, mask, why, extra=None, tie=True):
    """make(Toy) -> subclass with forward and update; names: model inputs before the caches."""
    import torch
    import toy
    from hfutil import versions
    m = make(toy)(**cls_kw).eval()
    L = m.c["layers"]
    kin, kout = toy.kv_names(L), toy.kv_names(L, "k_cache_%d_out", "v_cache_%d_out")
    args, dyn = [], {}
    for n, (t, d) in names.items():
        args.append(t); dyn[n] = d
    single = all(1 not in d or d[1] != "S" for d in dyn.values()) and not any("S" in d.values() for d in dyn.values())
    caches = [torch.randn(m.cache_shape(2)) for _ in kin]
    for n in kin:
        dyn[n] = {0: "B"}
    if dynamo:
        toy.export(m, args + caches, list(names) + kin, ["logits"] + kout, dyn, os.path.join(out, "raw.onnx"), True, opset, tie)
    else:
        dyn["logits"] = dict(outs_dyn)
        for n in kout:
            dyn[n] = {0: "B"}
        toy.export(m, tuple(args + caches), list(names) + kin, ["logits"] + kout, dyn, os.path.join(out, "raw.onnx"), False, opset)
    tool = "%s; torch.onnx.export(dynamo=%s, opset_version=%d)" % (versions(), dynamo, opset)
    s = toy.spec(m, "hand-written decoder", tool, toy.static_caches(m, L, kin, kout), feeds, patterns=patterns, mask=mask, why=why)
    if single:
        s["steps"] = list(SINGLE)
        s["one_shot"] = False
    s.update(extra or {})
    return s


def _ids(S):
    import torch
    return torch.randint(1, 90, (2, S))


# S1: index_copy_, tril gather mask
def _index_copy(toy):
    class M(toy.Toy):
        def update(self, kc, vc, k, v, pos):
            kc = kc.clone().index_copy_(2, pos, k)
            vc = vc.clone().index_copy_(2, pos, v)
            return kc, vc, kc, vc

        def forward(self, input_ids, input_pos, k0, v0, k1, v1):
            mask = self.tril[None, None, input_pos]
            return self.run(input_ids, input_pos, mask, [k0, v0, k1, v1], input_pos)
    return M


@fixture("toy_index_copy_ts", env="optimum")
def f(out):
    import torch
    return _toy(out, dict(seed=51), _index_copy, {"input_ids": (_ids(3), {0: "B", 1: "S"}), "input_pos": (torch.arange(4, 7), {0: "S"})}, {0: "B", 1: "S"},
                False, 17, {"input_ids": "ids", "input_pos": "pos_s"}, ["S1"], ["M6"], "index_copy_ with one shared position vector")


@fixture("toy_index_copy_dynamo")
def f(out):
    import torch
    return _toy(out, dict(seed=52), _index_copy, {"input_ids": (_ids(3), {0: "B", 1: "S"}), "input_pos": (torch.arange(4, 7), {0: "S"})}, {},
                True, 18, {"input_ids": "ids", "input_pos": "pos_s"}, ["S9"], ["M6"], "index_copy_ with one shared position vector")


# S3: cache[:, :, pos] = k
def _index_put(toy):
    class M(toy.Toy):
        def update(self, kc, vc, k, v, pos):
            kc, vc = kc.clone(), vc.clone()
            kc[:, :, pos] = k
            vc[:, :, pos] = v
            return kc, vc, kc, vc

        def forward(self, input_ids, input_pos, k0, v0, k1, v1):
            mask = (self.slots[None, :] <= input_pos[:, None])[None, None]
            return self.run(input_ids, input_pos, mask, [k0, v0, k1, v1], input_pos)

        @property
        def slots(self):
            import torch
            return torch.arange(self.c["M"])
    return M


@fixture("toy_index_put_ts", env="optimum")
def f(out):
    import torch
    return _toy(out, dict(seed=53, attn="sdpa", repeat="interleave"), _index_put,
                {"input_ids": (_ids(3), {0: "B", 1: "S"}), "input_pos": (torch.arange(4, 7), {0: "S"})}, {0: "B", 1: "S"},
                False, 16, {"input_ids": "ids", "input_pos": "pos_s"}, ["S3"], ["M4"], "cache[:, :, pos] = k with one shared position vector")


# S5 / S10: cache[:, :, p:p+s] = k
def _slice_assign(toy):
    class M(toy.Toy):
        def update(self, kc, vc, k, v, p):
            p, s = p[0], k.shape[2]
            kc, vc = kc.clone(), vc.clone()
            kc[:, :, p:p + s] = k
            vc[:, :, p:p + s] = v
            return kc, vc, kc, vc

        def forward(self, input_ids, start_pos, k0, v0, k1, v1):
            import torch
            pos = torch.arange(input_ids.shape[1]) + start_pos
            mask = (torch.arange(self.c["M"])[None, :] <= pos[:, None])[None, None]
            return self.run(input_ids, pos, mask, [k0, v0, k1, v1], start_pos)
    return M


@fixture("toy_slice_assign_ts", env="optimum")
def f(out):
    import torch
    return _toy(out, dict(seed=54), _slice_assign, {"input_ids": (_ids(3), {0: "B", 1: "S"}), "start_pos": (torch.tensor([4]), {})}, {0: "B", 1: "S"},
                False, 17, {"input_ids": "ids", "start_pos": "start1"}, ["S5"], ["M3"], "slice assignment at a scalar start")


# the same with Python-int slicing through a 0-d tensor item, dynamo
def _slice_assign_item(toy):
    class M(toy.Toy):
        def update(self, kc, vc, k, v, p):
            import torch
            kc = torch.slice_scatter(kc, k, 2, p, p + k.shape[2])
            vc = torch.slice_scatter(vc, v, 2, p, p + v.shape[2])
            return kc, vc, kc, vc

        def forward(self, input_ids, start_pos, k0, v0, k1, v1):
            import torch
            p = start_pos.item()
            torch._check(p >= 0)
            torch._check(p + input_ids.shape[1] <= self.c["M"])
            pos = torch.arange(input_ids.shape[1]) + start_pos
            mask = (torch.arange(self.c["M"])[None, :] <= pos[:, None])[None, None]
            return self.run(input_ids, pos, mask, [k0, v0, k1, v1], p)
    return M


@fixture("toy_slice_scatter_dynamo")
def f(out):
    import torch
    return _toy(out, dict(seed=55), _slice_assign_item, {"input_ids": (_ids(3), {0: "B", 1: "S"}), "start_pos": (torch.tensor(4), {})}, {},
                True, 18, {"input_ids": "ids", "start_pos": "start"}, ["S10"], ["M3"], "slice_scatter at a scalar start", tie=False)


# llama reference: BSNH, slice assignment, read back of the valid prefix
def _llama_ref(toy):
    class M(toy.Toy):
        def update(self, kc, vc, k, v, p):
            b, s, p = k.shape[0], k.shape[1], p[0]
            kc, vc = kc.clone(), vc.clone()
            kc[:b, p:p + s] = k
            vc[:b, p:p + s] = v
            return kc[:b, :p + s], vc[:b, :p + s], kc, vc

        def forward(self, tokens, start_pos, k0, v0, k1, v1):
            import torch
            s = tokens.shape[1]
            pos = torch.arange(s) + start_pos
            mask = (torch.arange(self.c["M"])[None, :] <= pos[:, None])[None, None][..., :start_pos[0] + s]
            return self.run(tokens, pos, mask, [k0, v0, k1, v1], start_pos)
    return M


@fixture("toy_llama_ref_ts", env="optimum")
def f(out):
    import torch
    return _toy(out, dict(seed=56, layout="BSNH", rope="interleaved"), _llama_ref,
                {"tokens": (_ids(3), {0: "B", 1: "S"}), "start_pos": (torch.tensor([4]), {})}, {0: "B", 1: "S"},
                False, 14, {"tokens": "ids", "start_pos": "start1"}, ["S5", "R8"], ["M3"], "slice assignment, attention reads only the valid prefix",
                dict(features=["gqa", "interleaved-rope", "bsnh"]))


# S6: BSNH, per-batch position, single token
def _per_batch(toy):
    class M(toy.Toy):
        def update(self, kc, vc, k, v, pos):
            import torch
            kc, vc = kc.clone(), vc.clone()
            b = torch.arange(kc.shape[0])
            kc[b, pos] = k[:, 0]
            vc[b, pos] = v[:, 0]
            return kc, vc, kc, vc

        def forward(self, input_ids, pos, k0, v0, k1, v1):
            import torch
            mask = (torch.arange(self.c["M"])[None, :] <= pos[:, None])[:, None, None]
            return self.run(input_ids, pos[:, None], mask, [k0, v0, k1, v1], pos)
    return M


@fixture("toy_per_batch_bsnh_ts", env="optimum")
def f(out):
    import torch
    return _toy(out, dict(seed=57, layout="BSNH"), _per_batch, {"input_ids": (_ids(1), {0: "B"}), "pos": (torch.tensor([3, 5]), {0: "B"})}, {0: "B"},
                False, 17, {"input_ids": "ids", "pos": "start_b_ragged"}, ["S6"], ["M3"], "one token per batch row at a per-row position",
                dict(features=["gqa", "rope", "bsnh", "per-batch", "single-token"]))


# S8: scatter with [B,S] positions
def _scatter(toy):
    class M(toy.Toy):
        def update(self, kc, vc, k, v, pos):
            idx = pos[:, None, :, None].expand(-1, kc.shape[1], -1, kc.shape[3])
            kc = kc.scatter(2, idx, k)
            vc = vc.scatter(2, idx, v)
            return kc, vc, kc, vc

        def forward(self, input_ids, position_ids, k0, v0, k1, v1):
            import torch
            mask = (torch.arange(self.c["M"])[None, None, :] <= position_ids[:, :, None])[:, None]
            return self.run(input_ids, position_ids, mask, [k0, v0, k1, v1], position_ids)
    return M


_PB = lambda: __import__("torch").tensor([[3, 4, 5], [6, 7, 8]])


@fixture("toy_scatter_ts", env="optimum")
def f(out):
    return _toy(out, dict(seed=58), _scatter, {"input_ids": (_ids(3), {0: "B", 1: "S"}), "position_ids": (_PB(), {0: "B", 1: "S"})}, {0: "B", 1: "S"},
                False, 17, {"input_ids": "ids", "position_ids": "pos_rag"}, ["S8"], ["M3"],
                "scatter by free [B,S] positions: only valid under the contract that they are contiguous (S=1 always is)",
                dict(expect="partial", features=["gqa", "rope", "per-batch", "needs-contiguity-contract"]))


# R4: splice
def _splice(toy):
    class M(toy.Toy):
        def update(self, kc, vc, k, v, p):
            import torch
            p, s = p[0], k.shape[2]
            kc = torch.cat([kc[:, :, :p], k, kc[:, :, p + s:]], dim=2)
            vc = torch.cat([vc[:, :, :p], v, vc[:, :, p + s:]], dim=2)
            return kc, vc, kc, vc

        def forward(self, input_ids, start_pos, k0, v0, k1, v1):
            import torch
            pos = torch.arange(input_ids.shape[1]) + start_pos
            mask = (torch.arange(self.c["M"])[None, :] <= pos[:, None])[None, None]
            return self.run(input_ids, pos, mask, [k0, v0, k1, v1], start_pos)
    return M


@fixture("toy_splice_ts", env="optimum")
def f(out):
    import torch
    return _toy(out, dict(seed=59, attn="sdpa"), _splice, {"input_ids": (_ids(3), {0: "B", 1: "S"}), "start_pos": (torch.tensor([4]), {})}, {0: "B", 1: "S"},
                False, 17, {"input_ids": "ids", "start_pos": "start1"}, ["R4"], ["M4"], "cat([cache[:p], k, cache[p+s:]])")


# R5: one-hot select
def _onehot(toy):
    class M(toy.Toy):
        def update(self, kc, vc, k, v, pos):
            import torch
            hit = torch.arange(self.c["M"])[None, None, :, None] == pos.view(-1, 1, 1, 1)
            kc, vc = torch.where(hit, k, kc), torch.where(hit, v, vc)
            return kc, vc, kc, vc

        def forward(self, input_ids, pos, k0, v0, k1, v1):
            import torch
            mask = (torch.arange(self.c["M"])[None, :] <= pos[:, None])[:, None, None]
            return self.run(input_ids, pos[:, None], mask, [k0, v0, k1, v1], pos)
    return M


@fixture("toy_onehot_where_ts", env="optimum")
def f(out):
    import torch
    return _toy(out, dict(seed=60), _onehot, {"input_ids": (_ids(1), {0: "B"}), "pos": (torch.tensor([3, 5]), {0: "B"})}, {0: "B"},
                False, 17, {"input_ids": "ids", "pos": "start_b_ragged"}, ["R5"], ["M3"], "one-hot select, single token per row",
                dict(features=["gqa", "rope", "per-batch", "single-token"]))


# R1: FIFO shift (negative / partial)
def _fifo(toy):
    class M(toy.Toy):
        def update(self, kc, vc, k, v, _):
            import torch
            s = k.shape[2]
            kc, vc = torch.cat([kc[:, :, s:], k], dim=2), torch.cat([vc[:, :, s:], v], dim=2)
            return kc, vc, kc, vc

        def forward(self, input_ids, position_ids, attention_mask, k0, v0, k1, v1):
            return self.run(input_ids, position_ids, attention_mask, [k0, v0, k1, v1], None)
    return M


@fixture("toy_fifo_shift_ts", env="optimum")
def f(out):
    import torch
    return _toy(out, dict(seed=61), _fifo, {"input_ids": (_ids(1), {0: "B"}), "position_ids": (torch.tensor([[3], [3]]), {0: "B"}),
                "attention_mask": (torch.ones(2, 1, 1, 32, dtype=torch.bool), {0: "B"})}, {0: "B"},
                False, 17, {"input_ids": "ids", "position_ids": "pos_bs", "attention_mask": "mask_fifo"}, ["R1"], ["M9"],
                "the buffer shifts: valid data sits at the end, not at a write index",
                dict(expect="refuse", valid_at_end=True, features=["gqa", "rope", "shift", "right-aligned"]))

"""Models that must be refused."""
import os
from registry import fixture


@fixture("mask_scatter_only_ts", env="optimum")
def f(out):
    return _mask_only(out, False, 17)


@fixture("mask_scatter_only_dynamo")
def f(out):
    return _mask_only(out, True, 18)


def _mask_only(out, dynamo, opset):
    import torch
    import toy
    from hfutil import versions

    class M(toy.Toy):
        """No caches.  The mask is filled with the slice assignment of transformers 4.40 - 4.52."""

        def update(self, kc, vc, k, v, _):
            return k, v, None, None

        def forward(self, input_ids, attention_mask):
            b, s = input_ids.shape
            pos = torch.arange(s)
            low = torch.finfo(torch.float32).min
            causal = torch.full((s, s + 1), low)
            causal = torch.triu(causal, diagonal=1)
            causal = causal[None, None].expand(b, 1, -1, -1).clone()
            pad = causal[:, :, :, :s] + attention_mask[:, None, None, :]
            causal[:, :, :, :s] = causal[:, :, :, :s].masked_fill(pad == 0, low)
            return self.run(input_ids, pos, causal[:, :, :, :s], [None] * 4, None)[0]

    m = M(seed=62 + dynamo).eval()
    args = (torch.randint(1, 90, (2, 6)), torch.ones(2, 6, dtype=torch.long))
    d = {0: "B", 1: "S"}
    toy.export(m, args, ["input_ids", "attention_mask"], ["logits"], {"input_ids": d, "attention_mask": d} if dynamo else {"input_ids": d, "attention_mask": d, "logits": d},
               os.path.join(out, "raw.onnx"), dynamo, opset)
    return toy.spec(m, "hand-written decoder", "%s; torch.onnx.export(dynamo=%s, opset_version=%d)" % (versions(), dynamo, opset), [],
                    {"input_ids": "ids", "attention_mask": "mask_bt"}, growing=None, capacity=None, mask=["M2"], expect="refuse", steps=[5],
                    why="ScatterND only builds the mask; there is no cache", features=["gqa", "rope", "mask-scatter", "no-cache"])

"""Files of the format GGUF with a decoder of llama.py's shape and noise for weights.

Good for timing llama.cpp, which asks for no vocabulary to do that.
"""
import struct

import numpy as np

# Type number, elements and bytes of a block.
KINDS = {"F32": (0, 1, 4), "F16": (1, 1, 2), "BF16": (30, 1, 2), "Q8_0": (8, 32, 34),
         "Q4_0": (2, 32, 18)}
ALIGNMENT = 32


def _text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _pair(key, value):
    if isinstance(value, str):
        return _text(key) + struct.pack("<I", 8) + _text(value)
    if isinstance(value, float):
        return _text(key) + struct.pack("<If", 6, value)
    return _text(key) + struct.pack("<II", 4, value)


def _noise(kind):
    """Some blocks of small numbers, as bytes."""
    rng = np.random.default_rng(3)
    if kind in ("F32", "F16"):
        dtype = np.float32 if kind == "F32" else np.float16
        return (rng.standard_normal(1 << 16) * 0.02).astype(dtype).tobytes()
    if kind == "BF16":
        values = (rng.standard_normal(1 << 16) * 0.02).astype(np.float32)
        return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    blocks = rng.integers(0, 256, (4096, KINDS[kind][2]), np.uint8)
    blocks[:, :2] = np.frombuffer(np.float16(0.001).tobytes(), np.uint8)
    return blocks.tobytes()


def write(path, size, kind):
    """The decoder; how many bytes of weights a step reads."""
    tensors = [("token_embd.weight", (size.hidden, size.vocab), kind),
               ("output_norm.weight", (size.hidden,), "F32"),
               ("output.weight", (size.hidden, size.vocab), kind)]
    q, kv = size.q_heads * size.head, size.kv_heads * size.head
    for layer in range(size.layers):
        for name, shape in (("attn_q", (size.hidden, q)), ("attn_k", (size.hidden, kv)),
                            ("attn_v", (size.hidden, kv)), ("attn_output", (q, size.hidden)),
                            ("ffn_gate", (size.hidden, size.ffn)),
                            ("ffn_up", (size.hidden, size.ffn)),
                            ("ffn_down", (size.ffn, size.hidden))):
            tensors.append((f"blk.{layer}.{name}.weight", shape, kind))
        for name in ("attn_norm", "ffn_norm"):
            tensors.append((f"blk.{layer}.{name}.weight", (size.hidden,), "F32"))
    pairs = {"general.architecture": "llama", "llama.context_length": 8192,
             "llama.embedding_length": size.hidden, "llama.block_count": size.layers,
             "llama.feed_forward_length": size.ffn, "llama.attention.head_count": size.q_heads,
             "llama.attention.head_count_kv": size.kv_heads,
             "llama.attention.layer_norm_rms_epsilon": 1e-5,
             "llama.rope.dimension_count": size.head, "llama.vocab_size": size.vocab,
             "tokenizer.ggml.model": "none"}
    infos, offset, sizes = b"", 0, []
    for name, shape, of in tensors:
        number, elements, bytes_ = KINDS[of]
        infos += _text(name) + struct.pack("<I", len(shape))
        infos += struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", number, offset)
        sizes.append(int(np.prod(shape)) // elements * bytes_)
        offset += sizes[-1] + -sizes[-1] % ALIGNMENT
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    head += b"".join(_pair(key, value) for key, value in pairs.items()) + infos
    noise = {of: _noise(of) for of in {of for _, _, of in tensors}}
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % ALIGNMENT))
        for (_, _, of), bytes_ in zip(tensors, sizes):
            block = noise[of]
            for begin in range(0, bytes_, len(block)):
                file.write(block[:min(len(block), bytes_ - begin)])
            file.write(b"\0" * (-bytes_ % ALIGNMENT))
    return sum(sizes) - sizes[0]

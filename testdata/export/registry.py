"""Fixture registry.  A fixture is a function build(dir) that writes dir/raw.onnx (and dir/consts.npz
when it needs constant inputs) and returns a spec (see common.finish)."""
FIXTURES = {}


def fixture(name, env="new", timeout=300):
    def deco(f):
        FIXTURES[name] = dict(name=name, env=env, timeout=timeout, build=f)
        return f
    return deco


def auto(raw, layers=None):
    """Caches and feeds of a graph that follows the usual naming."""
    import re
    import onnx
    m = onnx.load(raw, load_external_data=False)
    inits = {i.name for i in m.graph.initializer}
    outs = [o.name for o in m.graph.output]
    caches, feeds = [], {}
    for i in m.graph.input:
        n = i.name
        if n in inits:
            continue
        g = re.match(r"past_key_values[._](\d+)[._](?:(decoder|encoder)[._])?(key_value|key|value)$", n)
        if g:
            o = n.replace("past_key_values", "present")
            if o not in outs:
                o = n.replace("past_key_values", "present_key_values")
            init, axis = [], None
            for k, d in enumerate(i.type.tensor_type.shape.dim):
                if d.HasField("dim_value"):
                    init.append(d.dim_value)
                elif "batch" in d.dim_param:
                    init.append("B")
                else:
                    init.append("P"); axis = k
            caches.append(dict(input=n, output=o if o in outs else None, layer=int(g.group(1)), role=g.group(3),
                               axis=axis if axis is not None else 2, init=init))
        elif n == "input_ids" or n == "decoder_input_ids":
            feeds[n] = "ids"
        elif n == "position_ids":
            feeds[n] = "pos_bs"
        elif n in ("attention_mask", "decoder_attention_mask"):
            feeds[n] = "mask_bt"
        elif n == "cache_position":
            feeds[n] = "pos_s"
        elif n == "use_cache_branch":
            feeds[n] = "flag_past"
    return caches, feeds, outs

# This text replaces main() of loop.py, whose Decoder it drives.


class Speculator:
    """Speculative decoding of one sequence: a small model drafts tokens, the model verifies them.

    The result is what the model alone would generate greedily. A draft is a tree: a chain of the
    likeliest tokens and, beside each of them, the second likeliest. The model verifies it in one
    step, in which each token sees its ancestors only (the tree mask). Accepted tokens are counted
    in `lengths`; the next step overwrites all others. A token beside the chain is not next to its
    parent in the caches, so it is fed again if it is accepted.
    """

    def __init__(self, decoder, draft, depth=4, draft_logits=LOGITS):
        self.decoder, self.draft, self.depth = decoder, draft, depth
        self._logits = draft_logits
        self.steps = 0  # of the model, after the prompt
        self._tree = next(n for n, i in INPUTS.items() if i.meaning == "tree")
        self._positions = next(n for n, i in INPUTS.items()
                               if i.meaning == "positions" and "S" in i.axes)

    def _propose(self, said, depth):
        """Drafts `depth` tokens after `said`: a chain, and the token beside each of them."""
        draft = self.draft
        known = int(draft.lengths[0])
        rows = draft.step([said[known:]])[self._logits]
        chain, beside = [], []
        for k in range(depth):
            second, first = rows.reshape(-1, rows.shape[-1])[-1].argsort()[-2:]
            chain.append(int(first))
            beside.append(int(second))
            if k + 1 < depth:
                rows = draft.step([[chain[-1]]])[self._logits]
        draft.lengths[:] = len(said)
        return chain, beside

    def _verify(self, pending, chain, beside):
        """Returns the likeliest next token after each token of the tree."""
        decoder, depth = self.decoder, len(chain)
        past, stem = int(decoder.lengths[0]), len(pending) + depth
        size = stem + depth
        tree = np.zeros((size, size), bool)
        tree[:stem, :stem] = np.tri(stem)
        for k in range(depth):
            tree[stem + k, :len(pending) + k] = True
            tree[stem + k, stem + k] = True
        places = np.append(np.arange(stem), len(pending) + np.arange(depth))
        outputs = decoder.step([pending + chain + beside], feeds={
            self._tree: tree[None, None], self._positions: (past + places)[None]})
        decoder.lengths[:] = past + len(pending)
        self.steps += 1
        return outputs[LOGITS][0].argmax(-1)

    def generate(self, prompt, count):
        """Returns the `count` tokens that follow the prompt."""
        decoder = self.decoder
        first = int(decoder.prefill([prompt]).argmax())
        self.draft.prefill([prompt])
        said, pending = [*prompt, first], [first]
        while len(said) < len(prompt) + count:
            # All tokens of a step need slots, also those that are rejected.
            free = decoder.capacity - int(decoder.lengths[0]) - len(pending)
            depth = min(self.depth, free // 2, len(prompt) + count - len(said),
                        self.draft.capacity - len(said))
            chain, beside = self._propose(said, depth) if depth > 0 else ([], [])
            likeliest = self._verify(pending, chain, beside)
            following = int(likeliest[len(pending) - 1])
            pending = [following]
            for k in range(len(chain)):
                if following == chain[k]:
                    said.append(following)
                    decoder.lengths += 1
                    following = int(likeliest[len(likeliest) - 2 * len(chain) + k])
                    pending = [following]
                elif following == beside[k]:
                    said.append(following)
                    pending = [following, int(likeliest[len(likeliest) - len(chain) + k])]
                    following = pending[-1]
                    break
                else:
                    break
            said.append(following)
        return said[len(prompt):len(prompt) + count]


def main():
    import importlib.util
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=MODEL)
    parser.add_argument("--draft-loop", required=True, help="the loop of the model that drafts")
    parser.add_argument("--draft", help="that model, if not where its loop says")
    parser.add_argument("--depth", type=int, default=4, help="tokens to draft for a step")
    parser.add_argument("--prompt", action="append", required=True,
                        help="tokens of one sequence: 1,2,3")
    parser.add_argument("--new", type=int, default=16, help="tokens to add")
    parser.add_argument("--capacity", type=int, default=CAPACITY or 256)
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    spec = importlib.util.spec_from_file_location("draft_loop", args.draft_loop)
    loop = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loop)
    for text in args.prompt:
        decoder = Decoder(args.model, 1, args.capacity, args.threads)
        draft = loop.Decoder(args.draft or loop.MODEL, 1, loop.CAPACITY or args.capacity,
                             args.threads)
        said = Speculator(decoder, draft, args.depth, loop.LOGITS).generate(
            [int(token) for token in text.split(",")], args.new)
        print(",".join(str(token) for token in said))


if __name__ == "__main__":
    main()

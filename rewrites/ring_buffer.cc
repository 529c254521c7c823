// present = a buffer of fixed capacity M with the new tokens written around its end:
//
//   present[.., t, ..] = (t - w) mod M < S ? update[.., (t - w) mod M, ..] : past[.., t, ..]
//
// Correct: TensorScatter in circular mode at write_indices = w mod M. The buffer holds the very
// same rows, so whatever else reads it reads on. S <= M, else a slot would be written twice;
// sources whose scatter repeats an index leave that case open themselves. Source: hybrid and
// sliding caches that write at position mod capacity.
#include "rewrite/append.h"
#include "rewrite/rule.h"

namespace kvlift::rewrites {
namespace {

Recognised<CacheUpdate> Match(sym::Forms& forms, const CachePair& pair) {
  const auto write = ReadRing(forms, pair);
  auto update = write ? BufferUpdate(forms, pair, *write) : std::nullopt;
  if (!update) return Recognised<CacheUpdate>::NotThis();
  update->kind = "scatter";
  update->circular = true;
  return Recognised<CacheUpdate>::Match(*std::move(update));
}

}  // namespace

const Rule& ring_buffer() {
  static const Rule rule = {"ring_buffer", "a cache whose rows wrap around the end of its buffer",
                            &Match, nullptr};
  return rule;
}

}  // namespace kvlift::rewrites

// present = a buffer of fixed capacity M in which the new rows wrap around the end:
//
//   present[.., t, ..] = (t - w) mod M < S ? update[.., (t - w) mod M, ..] : past[.., t, ..]
//
// Correct: TensorScatter in circular mode at write_indices = w mod M gives the same rows in the
// same slots, so other readers of the buffer may stay. S <= M is required, since a slot would be
// written twice otherwise; ONNX does not define the result of a scatter with a repeated index
// either. Source: hybrid and sliding-window caches that write at position mod capacity.
#include "rewrite/recognise/append.h"
#include "rewrite/types/rule.h"

namespace kvlift::rewrites {
namespace {

Recognised<CacheUpdate> MatchRingBuffer(sym::Forms& forms, const CachePair& pair) {
  const auto write = ReadRing(forms, pair);
  auto update = write ? BufferUpdate(forms, pair, *write, WriteAround{write->start}) : std::nullopt;
  if (!update) return Recognised<CacheUpdate>::NotThis();
  return Recognised<CacheUpdate>::Match(*std::move(update));
}

}  // namespace

const Rule& ring_buffer() {
  static const Rule rule = {"ring_buffer", "a cache whose rows wrap around the end of its buffer",
                            &MatchRingBuffer, nullptr};
  return rule;
}

}  // namespace kvlift::rewrites

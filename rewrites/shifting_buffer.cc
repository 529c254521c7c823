// present = a buffer of fixed capacity M whose rows move to the front to make room at the end:
//
//   present[.., t, ..] = t < M - S ? past[.., t + S, ..] : update[.., t - (M - S), ..]
//
// Correct: TensorScatter in circular mode at write_indices = P mod M leaves every row in its slot;
// row t of the source is in slot (t + P + S) mod M. The order of keys does not matter to attention
// if its mask has the same order. Another reader would get the rows in another order, so it is
// refused. Source: sliding-window caches of WinML and of compilers for NPUs.
#include "fmt/format.h"
#include "rewrite/recognise/append.h"
#include "rewrite/types/rule.h"

namespace kvlift::rewrites {
namespace {

Recognised<CacheUpdate> MatchShiftingBuffer(sym::Forms& forms, const CachePair& pair) {
  const auto write = ReadShift(forms, pair);
  auto update = write ? BufferUpdate(forms, pair, *write, Fifo{}) : std::nullopt;
  if (!update) return Recognised<CacheUpdate>::NotThis();
  const Graph& graph = forms.graph();
  if (update->layout[0] != 'B') {
    return Recognised<CacheUpdate>::Refuse(MakeFinding(
        "KV217",
        fmt::format("needs the axis of sequences in front of a buffer whose rows move, found {}",
                    update->layout),
        graph, {update->node}, {pair.past, pair.present}));
  }
  return Recognised<CacheUpdate>::Match(*std::move(update));
}

}  // namespace

const Rule& shifting_buffer() {
  static const Rule rule = {"shifting_buffer", "a cache whose rows move with every step",
                            &MatchShiftingBuffer, nullptr};
  return rule;
}

}  // namespace kvlift::rewrites

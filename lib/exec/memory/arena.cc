#include "exec/memory/arena.h"

#include <algorithm>
#include <numeric>

namespace kvlift::exec {
namespace {

size_t Aligned(size_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

struct Placed {
  size_t begin, end;
  int first, last;
};

// Returns the start of the smallest gap between `placed` (sorted by begin) that holds the block.
size_t FindGap(const std::vector<Placed>& placed, const Block& block, size_t bytes) {
  size_t best = 0, best_size = 0, at = 0;
  bool found = false;
  for (const Placed& other : placed) {
    if (other.last < block.first || other.first > block.last) continue;
    if (other.begin >= at + bytes && (!found || other.begin - at < best_size)) {
      found = true;
      best = at;
      best_size = other.begin - at;
    }
    at = std::max(at, other.end);
  }
  return found ? best : at;
}

}  // namespace

size_t PackArena(absl::Span<const Block> blocks, std::vector<size_t>* offsets) {
  offsets->assign(blocks.size(), 0);
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  std::vector<Placed> placed;
  placed.reserve(blocks.size());
  size_t total = 0;
  for (const size_t i : order) {
    const size_t bytes = Aligned(blocks[i].bytes);
    if (bytes == 0) continue;
    const size_t begin = FindGap(placed, blocks[i], bytes);
    (*offsets)[i] = begin;
    total = std::max(total, begin + bytes);
    const auto after = std::upper_bound(placed.begin(), placed.end(), begin,
                                        [](size_t at, const Placed& p) { return at < p.begin; });
    placed.insert(after, {begin, begin + bytes, blocks[i].first, blocks[i].last});
  }
  return total;
}

}  // namespace kvlift::exec

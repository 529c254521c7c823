#include "verify/inputs/ring_slots.h"

#include <algorithm>

#include "verify/inputs/stimulus.h"
#include "verify/inputs/tensor_rows.h"

namespace kvlift {
namespace {

int64_t Modulo(int64_t a, int64_t m) { return (a % m + m) % m; }

// Returns a copy in which row r of sequence b is row (r + by[b]) mod M of `whole`.
exec::Tensor Rotated(const exec::View& whole, const SourceCache& cache,
                     const std::vector<int64_t>& by) {
  const int batch = SourceAxisOf(cache, 'B'), along = SourceAxisOf(cache, 'S');
  const int64_t each = whole.shape[batch] / static_cast<int64_t>(by.size());
  const int64_t rows = whole.shape[along];
  exec::Tensor turned = Part(whole, batch, 0, whole.shape[batch]);
  for (size_t b = 0; rows > 0 && b < by.size(); ++b) {
    const int64_t first = static_cast<int64_t>(b) * each, cut = Modulo(by[b], rows);
    const exec::Tensor own = Part(whole, batch, first, first + each);
    exec::Tensor mine = Part(own.view(), along, 0, rows);
    Place(mine.view(), along, 0, Part(own.view(), along, cut, rows).view());
    Place(mine.view(), along, rows - cut, Part(own.view(), along, 0, cut).view());
    Place(turned.view(), batch, first, mine.view());
  }
  return turned;
}

// Returns the last rows, those that a sliding buffer holds after `tokens` tokens.
exec::Tensor NewestRows(const exec::View& rows, const SourceCache& cache, int64_t tokens) {
  const int along = SourceAxisOf(cache, 'S');
  const int64_t all = rows.shape[along], held = std::min(all, cache.sliding->RowsHeld(tokens));
  return Part(rows, along, all - held, all);
}

// Returns a sliding buffer that holds the rows. The slots behind them hold numbers that no step may
// read.
exec::Tensor InSlidingBuffer(const exec::View& rows, const SourceCache& cache) {
  constexpr double kUnused = 3;
  const int along = SourceAxisOf(cache, 'S');
  exec::Shape shape = rows.shape;
  shape[along] = cache.sliding->slots();
  exec::Tensor buffer(rows.type, shape);
  for (int64_t i = 0; i < buffer.size(); ++i) StoreDouble(buffer.view(), i, kUnused);
  Place(buffer.view(), along, 0, rows);
  return buffer;
}

}  // namespace

bool Shifts(const SourceCache& cache) { return cache.kind == UpdateKind::kShift && !cache.growing; }

std::vector<std::pair<int64_t, int64_t>> SplitAtWrap(int64_t begin, int64_t end, int64_t capacity) {
  std::vector<std::pair<int64_t, int64_t>> laps;
  while (begin < end) {
    const int64_t next = std::min(end, (begin / capacity + 1) * capacity);
    laps.emplace_back(begin, next);
    begin = next;
  }
  return laps;
}

void IntoSourceOrder(const Manifest& relation, const StepSpec& step, exec::Feeds* feeds) {
  for (const ManifestCache& cache : relation.caches) {
    exec::Tensor& value = feeds->at(cache.source.input);
    if (cache.source.sliding) {
      const exec::Tensor newest = NewestRows(value.view(), cache.source, step.past[0]);
      value = InSlidingBuffer(newest.view(), cache.source);
    }
    if (!Shifts(cache.source)) continue;
    value = Rotated(value.view(), cache.source, step.past);
  }
}

void IntoRing(int64_t first, const SourceCache& cache, exec::Tensor* rows) {
  *rows = Rotated(rows->view(), cache, {-first});
}

void IntoSlotOrder(const Manifest& relation, const StepSpec& step, exec::Fetches* fetches) {
  std::vector<int64_t> back;
  for (int64_t past : step.past) back.push_back(-(past + step.new_tokens));
  for (const ManifestCache& cache : relation.caches) {
    const auto it = fetches->find(cache.source.output);
    if (it == fetches->end()) continue;
    exec::Tensor& value = it->second;
    if (cache.source.sliding) {
      const int64_t held = cache.source.sliding->RowsHeld(step.past[0] + step.new_tokens);
      const int along = SourceAxisOf(cache.source, 'S');
      value = Part(value.view(), along, 0, std::min(held, value.shape()[along]));
    }
    if (!Shifts(cache.source)) continue;
    value = Rotated(value.view(), cache.source, back);
  }
}

}  // namespace kvlift

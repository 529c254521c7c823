// Checks what a step does to caches. The source may only append rows; the converted model must
// write the same rows and leave all others as they are.
#include <algorithm>
#include <cmath>

#include "fmt/format.h"
#include "verify/inputs/ring_slots.h"
#include "verify/steps/drive.h"

namespace kvlift {
// A bound counts if the driver is watched: another runtime may be as far from the source as that.
void Driver::NoteGap(const Bounded& want, const Bounded& got, const Range& batch, int axis,
                     int64_t begin, exec::Tensor* gap) const {
  const exec::View &theirs = want.value.view(), &mine = got.value.view();
  if (gap == nullptr || theirs.shape != mine.shape) return;
  exec::Tensor bound;
  if (watched()) bound = BoundsOf(theirs, source_nodes_, SumOfBounds(want, got).view());
  exec::Tensor distance(onnx::TensorProto::DOUBLE, mine.shape);
  for (int64_t i = 0; i < mine.size(); ++i) {
    double d = std::fabs(exec::ElementAsDouble(theirs, i) - exec::ElementAsDouble(mine, i));
    if (!bound.empty()) d += bound.span<double>()[i];
    distance.span<double>()[i] = std::isfinite(d) ? d : 0;
  }
  exec::Tensor part = Part(gap->view(), batch.axis, batch.begin, batch.end);
  Place(part.view(), axis, begin, distance.view());
  Place(gap->view(), batch.axis, batch.begin, part.view());
}

// A cache with a window may drop its oldest rows.
std::string Driver::CheckAppended(const ManifestCache& cache, const StepSpec& step,
                                  const exec::View& past, const exec::View& present) const {
  const auto axis = static_cast<size_t>(SourceAxisOf(cache.source, 'S'));
  if (past.shape.size() != present.shape.size() || past.type != present.type) {
    return fmt::format("{} is no later state of {}", cache.source.output, cache.source.input);
  }
  for (size_t k = 0; k < past.shape.size(); ++k) {
    if (k != axis && past.shape[k] != present.shape[k]) {
      return fmt::format("{} has the shape {} after {}", cache.source.output,
                         exec::ShapeString(present.shape), exec::ShapeString(past.shape));
    }
  }
  const int64_t rows = present.shape[axis], before = past.shape[axis], news = step.new_tokens;
  const auto same = [&](const exec::View& a, int64_t from, const exec::View& b, int64_t at,
                        int64_t count) {
    return count <= 0 || SameBytes(Part(a, static_cast<int>(axis), from, from + count).view(),
                                   Part(b, static_cast<int>(axis), at, at + count).view());
  };
  if (cache.source.growing) {
    const bool window =
        cache.source.kind == UpdateKind::kWindow || cache.source.kind == UpdateKind::kFused ||
        cache.source.kind == UpdateKind::kShift || cache.source.kind == UpdateKind::kSliding;
    if (rows != before + news && !(window && rows < before + news)) {
      return fmt::format("the source's {} holds {} rows after {} and {} new ones",
                         cache.source.output, rows, before, news);
    }
    if (!same(present, 0, past, before + news - rows, rows - news)) {
      return fmt::format("the source does not append to {}", cache.source.input);
    }
    return {};
  }
  if (rows != before) {
    return fmt::format("the source's {} holds {} rows instead of {}", cache.source.output, rows,
                       before);
  }
  const int batch = SourceAxisOf(cache.source, 'B'), along = SourceAxisOf(cache.source, 'S');
  const int64_t each = past.shape[batch] / step.batch();
  for (int64_t b = 0; b < step.batch(); ++b) {
    const Range mine{batch, b * each, (b + 1) * each};
    const bool around = IsCircular(relation_, cache);
    const int64_t begin = around ? step.past[b] % rows : step.past[b], end = begin + news;
    const int64_t wrapped = around ? std::max<int64_t>(0, end - rows) : 0;
    const auto kept = [&](int64_t from, int64_t to) {
      const Range between{along, from, to};
      if (from >= to || SameInBox(past, present, mine, between)) return true;
      // A source that blends slots (past * 0 + new * 1, say) may turn 0 into -0.
      const exec::Tensor x = Part(past, batch, mine.begin, mine.end);
      const exec::Tensor y = Part(present, batch, mine.begin, mine.end);
      return SameNumbers(Part(x.view(), along, from, to).view(),
                         Part(y.view(), along, from, to).view());
    };
    if (end - wrapped > rows || news > rows || !kept(wrapped, begin) || !kept(end, rows)) {
      return fmt::format("the source writes to other rows of {} than [{}, {})", cache.source.input,
                         begin, end);
    }
  }
  return {};
}

bool Driver::KeepsOthers(const ManifestCache& cache, const exec::View& fed, const exec::View& now,
                         const Range& mine, int axis, int64_t begin, int64_t end) const {
  const int64_t capacity = now.shape[axis];
  const auto same = [&](int64_t from, int64_t to) {
    return SameInBox(now, fed, mine, {axis, from, to});
  };
  if (!IsCircular(relation_, cache)) {
    return end <= capacity && same(0, begin) && same(end, capacity);
  }
  const int64_t slot = begin % capacity, after = slot + end - begin;
  return end - begin <= capacity && same(std::max<int64_t>(0, after - capacity), slot) &&
         same(after, capacity);
}

// Compares the rows that the step writes with the source's. Every other row must hold the very
// bytes that were fed; returns what is wrong with such a row, or empty.
std::string Driver::CheckCache(const ManifestCache& cache, const Given& given,
                               const Bounded& theirs, const std::vector<int>& group,
                               const exec::View& fed, const Bounded& now, exec::Tensor* gap,
                               Outcome* outcome) const {
  const StepSpec& step = given.step;
  const exec::Shape &mine = now.value.shape(), &shape = theirs.value.shape();
  const int axis = static_cast<int>(cache.axis), batch = AxisOf(cache.layout, 'B');
  const int their_axis = SourceAxisOf(cache.source, 'S');
  const int their_batch = SourceAxisOf(cache.source, 'B');
  const auto members = static_cast<int64_t>(group.size());
  const int64_t each = mine[batch] / step.batch();
  if (each == 0 || shape[their_batch] != members * each) {
    return fmt::format("cache {}: the source's has the shape {}", cache.id,
                       exec::ShapeString(shape));
  }
  for (int64_t k = 0; k < members; ++k) {
    const int b = group[k];
    const int64_t begin = step.past[b], end = begin + step.new_tokens;
    const int64_t capacity = mine[axis];
    const Range own{batch, b * each, (b + 1) * each};
    if (!KeepsOthers(cache, fed, now.value.view(), own, axis, begin, end)) {
      return fmt::format("cache {}: rows outside [{}, {}) changed in sequence {}", cache.id, begin,
                         end, b);
    }
    // Row r of a growing source's present holds token first + r.
    const int64_t rows = shape[their_axis], total = begin + step.real_of(b);
    const int64_t first = cache.source.growing ? total - rows : 0;
    const int64_t written = std::max(begin, first);
    const int64_t from = step.pads.empty() ? written : std::clamp(step.pads[b], written, total);
    const auto look = [&](int64_t row_begin, int64_t row_end, bool judged) {
      for (const auto& lap : SplitAtWrap(row_begin, row_end, capacity)) {
        const int64_t slot = lap.first % capacity, count = lap.second - lap.first;
        const int64_t row = cache.source.growing ? lap.first - first : slot;
        const Bounded new_rows = Part(theirs, their_axis, row, row + count);
        const Bounded want =
            InTargetOrder(Part(new_rows, their_batch, k * each, (k + 1) * each), cache);
        const Bounded got = Part(Part(now, axis, slot, slot + count), batch, own.begin, own.end);
        if (judged) {
          if (!SameInBox(now.value.view(), fed, own, {axis, slot, slot + count})) {
            outcome->written[cache.id].insert(slot);
          }
          Judge(given, want, got, cache.output, {b, {own, {axis, slot, slot + count}}}, outcome);
        }
        NoteGap(want, got, own, axis, slot, gap);
      }
    };
    look(written, from, /*judged=*/false);
    const auto [pads, behind] = UnjudgedPads(step, b);
    if (pads < behind) {
      const int64_t hide = std::clamp(begin + pads, from, total);
      const int64_t show = std::clamp(begin + behind, from, total);
      look(from, hide, /*judged=*/true);
      look(hide, show, /*judged=*/false);
      look(show, total, /*judged=*/true);
      continue;
    }
    look(from, total, /*judged=*/true);
  }
  return {};
}

// Compares all rows of a cache that grows in both models, but those of padding tokens that may
// differ.
void Driver::JudgeGrown(const Given& given, const ManifestCache& cache, const Bounded& want,
                        const Bounded& got, Outcome* outcome) const {
  const StepSpec& step = given.step;
  if (!PaddingMayDiffer() || (step.hidden.empty() && step.pads.empty())) {
    return Judge(given, want, got, cache.output, {}, outcome);
  }
  const int axis = static_cast<int>(cache.axis), batch = AxisOf(cache.layout, 'B');
  const exec::Shape& shape = got.value.shape();
  const int64_t each = shape[batch] / step.batch(), total = shape[axis];
  for (int b = 0; b < step.batch(); ++b) {
    const Range own{batch, b * each, (b + 1) * each};
    const auto judge = [&](int64_t from, int64_t to) {
      if (from >= to) return;
      const auto part = [&](const Bounded& all) {
        return Part(Part(all, axis, from, to), batch, own.begin, own.end);
      };
      Judge(given, part(want), part(got), cache.output, {b, {own, {axis, from, to}}}, outcome);
    };
    const int64_t first = step.pads.empty() ? 0 : std::min(step.pads[b], total);
    if (step.hidden.empty()) {
      judge(first, total);
      continue;
    }
    judge(first, std::min(step.hidden[b].first, total));
    judge(std::max(first, step.hidden[b].second), total);
  }
}

std::string Driver::CheckCaches(const Given& given, const CacheState& before, Gaps* gaps,
                                Outcome* outcome) const {
  for (const ManifestCache& cache : relation_.caches) {
    const exec::Tensor& given_past = before.at(cache.id);
    const exec::Tensor past =
        given.step.order.empty()
            ? given_past
            : Reordered(given_past.view(), AxisOf(cache.layout, 'B'), given.step.order);
    const exec::View& fed = past.view();
    const Bounded now = Mine(given, cache.output);
    exec::Tensor* gap = nullptr;
    if (gaps != nullptr) {
      gap = &(*gaps)[cache.input];
      const exec::Shape& shape = now.value.shape();
      if (gap->empty() || gap->shape() != shape) {
        *gap = exec::Tensor::Zeros(onnx::TensorProto::DOUBLE, shape);
      }
    }
    if (cache.grows) {
      const Bounded want = InTargetOrder(Theirs(given, 0, cache.source.output), cache);
      JudgeGrown(given, cache, want, now, outcome);
      NoteGap(want, now, {0, 0, now.value.shape()[0]}, 0, 0, gap);
      continue;
    }
    if (fed.type != now.value.type() || fed.shape != now.value.shape()) {
      return fmt::format("cache {} changed its type or shape to {}", cache.id,
                         exec::ShapeString(now.value.shape()));
    }
    for (size_t g = 0; g < given.source.groups.size(); ++g) {
      std::string text = CheckCache(cache, given, Theirs(given, g, cache.source.output),
                                    given.source.groups[g], fed, now, gap, outcome);
      if (!text.empty()) return text;
    }
  }
  return {};
}

}  // namespace kvlift

#include "soundness/compare.h"

#include <algorithm>
#include <cmath>

#include "contract/layout.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace kvlift::soundness {
namespace {

using oracle::Dims;
using oracle::Value;
using oracle::Values;

std::string Hold(const Value& mine, int64_t i, const Value& theirs, int64_t j) {
  if (!mine.real()) {
    const int64_t x = mine.integers()[i], y = theirs.integers()[j];
    return x == y ? "" : fmt::format("{} for {}", x, y);
  }
  const oracle::Number x = mine.reals().At(i), y = theirs.reals().At(j);
  if (std::isnan(y.value)) return "";
  if (std::isnan(x.value)) return fmt::format("NaN for {}", y.value);
  if (x.value == y.value) return "";
  const double bound = oracle::BoundOf(x.worst, x.spread) + oracle::BoundOf(y.worst, y.spread);
  const double size = std::max({std::fabs(x.value), std::fabs(y.value), 1.0});
  if (std::fabs(x.value - y.value) <= 1.01 * bound + 1e-9 * size) return "";
  return fmt::format("{} for {}, bound {}", x.value, y.value, bound);
}

}  // namespace

std::optional<Difference> Compare(const Relation& relation, const Step& step, const Made& made,
                                  const std::vector<Values>& source, const Values& converted,
                                  int* judged) {
  const auto differs = [&](const std::string& output, const std::string& what) {
    return Difference{false, fmt::format("{}: {}: {}", step.Text(), output, what)};
  };
  const bool ragged = step.ragged();
  for (const ManifestOutput& output : relation.manifest.outputs) {
    if (IsCache(output)) continue;
    const std::string& name = NameInSource(output);
    const auto mine = converted.find(output.name);
    if (mine == converted.end()) return differs(name, "is no output");
    const auto* declared = Find(relation.before.graph().output(), name);
    if (declared == nullptr) return differs(name, "is no output of the source");
    const int axis = BatchAxis(*declared);
    if (ragged && (axis < 0 || TellsLength(*declared))) continue;
    const int64_t groups = std::ssize(source);
    for (int64_t g = 0; g < groups; ++g) {
      const auto theirs = source[g].find(name);
      if (theirs == source[g].end()) continue;
      const Value& want = theirs->second;
      const Value& got = mine->second;
      if (want.doubtful || got.doubtful) continue;
      Dims expected = want.dims();
      if (groups > 1 && axis < want.rank()) expected[axis] *= groups;
      if (got.type() != want.type()) return differs(name, "has another type");
      // Rows of padding tokens are not compared.
      for (size_t k = 0; step.padded() && k < std::min(expected.size(), got.dims().size()); ++k) {
        const bool tokens = got.dims()[k] == step.tokens && expected[k] == step.RealTokens(g);
        if (static_cast<int>(k) != axis && tokens) expected[k] = step.tokens;
      }
      if (got.dims() != expected) {
        return differs(name, fmt::format("[{}] for [{}]", fmt::join(got.dims(), ", "),
                                         fmt::join(expected, ", ")));
      }
      Dims at(want.dims().size(), 0);
      for (int64_t i = 0; i < want.size(); ++i) {
        Dims outer = at;
        if (groups > 1) outer[axis] += g;
        const std::string what = Hold(got, Place(got.dims(), outer), want, i);
        if (!what.empty()) {
          return differs(name, fmt::format("[{}]: {}", fmt::join(outer, ", "), what));
        }
        Next(want.dims(), &at);
      }
      ++*judged;
    }
  }
  for (const ManifestCache& cache : relation.manifest.caches) {
    const auto mine = converted.find(cache.output);
    if (mine == converted.end()) return differs(cache.output, "is no output");
    const Value& got = mine->second;
    const Tensor& fed = made.caches.at(cache.id);
    if (got.dims() != fed.dims) {
      return differs(cache.output, fmt::format("[{}] for [{}]", fmt::join(got.dims(), ", "),
                                               fmt::join(fed.dims, ", ")));
    }
    const std::vector<std::string> letters = AxesOfLayout(cache.source.layout);
    const int sequence = AxisOf(cache.layout, 'B'), slot = AxisOf(cache.layout, 'S');
    std::vector<size_t> places;  // for each letter of the source's layout: the buffer's axis
    for (const std::string& letter : letters) {
      places.push_back(static_cast<size_t>(AxisOf(cache.layout, letter[0])));
    }
    Dims at(fed.dims.size(), 0), inner(fed.dims.size(), 0);
    for (int64_t i = 0; i < std::ssize(fed.values); ++i, Next(fed.dims, &at)) {
      const int64_t b = at[sequence];
      const size_t group = source.size() > 1 ? static_cast<size_t>(b) : 0;
      const auto theirs = source[group].find(cache.source.output);
      if (theirs == source[group].end()) return std::nullopt;
      const Value& want = theirs->second;
      if (want.doubtful || got.doubtful) break;
      std::string what;
      const int64_t end = step.past[b] + step.tokens;
      if (cache.source.growing && at[slot] >= step.past[b] + step.RealTokens(b) && at[slot] < end) {
        continue;  // a row of a padding token
      }
      if (cache.source.growing && at[slot] >= end) {
        const double now =
            got.real() ? got.reals().value[i] : static_cast<double>(got.integers()[i]);
        if (now != fed.values[i] && !relation.reordered) what = "an unused slot changed";
      } else {
        for (size_t k = 0; k < letters.size(); ++k) {
          inner[k] = at[places[k]];
          if (letters[k] == "B" && source.size() > 1) inner[k] = 0;
          if (k >= want.dims().size() || inner[k] >= want.dims()[k]) return std::nullopt;
        }
        what = Hold(got, i, want, Place(want.dims(), inner));
      }
      if (!what.empty()) {
        return differs(cache.output, fmt::format("[{}]: {}", fmt::join(at, ", "), what));
      }
    }
    ++*judged;
  }
  return std::nullopt;
}

}  // namespace kvlift::soundness

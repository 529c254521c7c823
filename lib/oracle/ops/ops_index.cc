// Operators that read or write elements at indices.
#include <algorithm>
#include <numeric>
#include <optional>

#include "oracle/core/op.h"

namespace kvlift::oracle {
namespace {

// Returns a non-negative index; negative ones count from the end. -1 if it is out of range.
int64_t Index(int64_t index, int64_t extent) {
  const int64_t at = index < 0 ? index + extent : index;
  return at < 0 || at >= extent ? -1 : at;
}

absl::Status Gather(OpContext& c) {
  const Value &x = c.in[0], &indices = c.in[1];
  const int64_t axis = AxisOf(c.Int("axis", 0), x.rank());
  if (axis < 0) return Wrong(c, "axis");
  const Dims front(x.dims().begin(), x.dims().begin() + axis);
  const Dims back(x.dims().begin() + axis + 1, x.dims().end());
  const int64_t outer = Product(front), inner = Product(back), extent = x.dims()[axis];
  Dims dims = front;
  dims.insert(dims.end(), indices.dims().begin(), indices.dims().end());
  dims.insert(dims.end(), back.begin(), back.end());
  std::vector<int64_t> from;
  from.reserve(static_cast<size_t>(Product(dims)));
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t index : indices.integers()) {
      const int64_t at = Index(index, extent);
      if (at < 0) return Wrong(c, "an index out of range");
      for (int64_t k = 0; k < inner; ++k) from.push_back((o * extent + at) * inner + k);
    }
  }
  (*c.out)[0] = Take(x, dims, from);
  return absl::OkStatus();
}

absl::Status GatherElements(OpContext& c) {
  const Value &x = c.in[0], &indices = c.in[1];
  const int64_t axis = AxisOf(c.Int("axis", 0), x.rank());
  if (axis < 0 || indices.rank() != x.rank()) return Wrong(c, "axis or rank");
  const Dims strides = StridesOf(x.dims());
  std::vector<int64_t> from(static_cast<size_t>(indices.size()));
  bool good = true;
  ForEach(indices.dims(), [&](int64_t i, const Dims& at) {
    const int64_t index = Index(indices.integers()[i], x.dims()[axis]);
    good = good && index >= 0;
    from[i] = Flat(at, strides) + (index - at[axis]) * strides[axis];
  });
  if (!good) return Wrong(c, "an index out of range");
  (*c.out)[0] = Take(x, indices.dims(), from);
  return absl::OkStatus();
}

// Returns the first element of the slice that a row of GatherND's indices selects; -1 if it is out
// of range.
int64_t PartOf(const Dims& dims, const Dims& strides, int64_t first_axis, const int64_t* row,
               int64_t length) {
  int64_t flat = 0;
  for (int64_t k = 0; k < length; ++k) {
    const int64_t at = Index(row[k], dims[first_axis + k]);
    if (at < 0) return -1;
    flat += at * strides[first_axis + k];
  }
  return flat;
}

absl::Status GatherND(OpContext& c) {
  const Value &x = c.in[0], &indices = c.in[1];
  const int64_t batch = c.Int("batch_dims", 0);
  if (indices.rank() < 1 || batch >= indices.rank() || batch > x.rank()) return Wrong(c, "rank");
  const int64_t length = indices.dims().back();
  if (batch + length > x.rank()) return Wrong(c, "indices");
  const Dims strides = StridesOf(x.dims());
  Dims dims(indices.dims().begin(), indices.dims().end() - 1);
  const Dims back(x.dims().begin() + batch + length, x.dims().end());
  const int64_t rows = Product(dims), inner = Product(back);
  const int64_t batches = Product(Dims(x.dims().begin(), x.dims().begin() + batch));
  const int64_t whole = batches == 0 ? 0 : x.size() / batches;
  dims.insert(dims.end(), back.begin(), back.end());
  std::vector<int64_t> from;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t part =
        PartOf(x.dims(), strides, batch, indices.integers().data() + r * length, length);
    if (part < 0) return Wrong(c, "an index out of range");
    const int64_t begin = part + r / (rows / batches) * whole;
    for (int64_t k = 0; k < inner; ++k) from.push_back(begin + k);
  }
  (*c.out)[0] = Take(x, dims, from);
  return absl::OkStatus();
}

// Combines an update with the element that is there already.
std::optional<Number> Combine(const std::string& how, const Number& a, const Number& b) {
  if (how == "add") return Plus(a, b);
  if (how == "mul") return Times(a, b);
  const bool first = how == "max" ? a.value >= b.value : a.value <= b.value;
  if (how != "max" && how != "min") return std::nullopt;
  return Number{first ? a.value : b.value, std::max(a.worst, b.worst),
                std::max(a.spread, b.spread)};
}

int64_t CombineIntegers(const std::string& how, int64_t a, int64_t b) {
  if (how == "add") return a + b;
  if (how == "mul") return a * b;
  return how == "max" ? std::max(a, b) : std::min(a, b);
}

// Combines element i of the updates with element to[i] of x.
absl::Status Scatter(OpContext& c, const std::vector<int64_t>& to) {
  const Value &x = c.in[0], &updates = c.in[2];
  const std::string how = c.Text("reduction", "none");
  if (how == "none") {
    std::vector<Pick> picks(static_cast<size_t>(x.size()));
    for (size_t i = 0; i < picks.size(); ++i) picks[i] = {0, static_cast<int64_t>(i)};
    for (size_t i = 0; i < to.size(); ++i) picks[to[i]] = {1, static_cast<int64_t>(i)};
    (*c.out)[0] = Collect({&x, &updates}, x.dims(), picks);
    return absl::OkStatus();
  }
  if (x.real()) {
    Reals out = x.reals();
    for (size_t i = 0; i < to.size(); ++i) {
      const auto n = Combine(how, out.At(to[i]), updates.reals().At(static_cast<int64_t>(i)));
      if (!n) return NoMeaning(c, "this reduction");
      out.Set(to[i], Rounded(*n, x.type()));
    }
    (*c.out)[0] = Value::FromReals(x.type(), x.dims(), std::move(out));
    return absl::OkStatus();
  }
  std::vector<int64_t> out = x.integers();
  for (size_t i = 0; i < to.size(); ++i) {
    out[to[i]] = Wrap(x.type(), CombineIntegers(how, out[to[i]], updates.integers()[i]));
  }
  (*c.out)[0] = Value::FromIntegers(x.type(), x.dims(), std::move(out));
  return absl::OkStatus();
}

absl::Status ScatterElements(OpContext& c) {
  const Value &x = c.in[0], &indices = c.in[1];
  const int64_t axis = AxisOf(c.Int("axis", 0), x.rank());
  if (axis < 0 || indices.dims() != c.in[2].dims()) return Wrong(c, "axis or shape");
  const Dims strides = StridesOf(x.dims());
  std::vector<int64_t> to(static_cast<size_t>(indices.size()));
  bool good = true;
  ForEach(indices.dims(), [&](int64_t i, const Dims& at) {
    const int64_t index = Index(indices.integers()[i], x.dims()[axis]);
    good = good && index >= 0;
    to[i] = Flat(at, strides) + (index - at[axis]) * strides[axis];
  });
  if (!good) return Wrong(c, "an index out of range");
  return Scatter(c, to);
}

absl::Status ScatterND(OpContext& c) {
  const Value &x = c.in[0], &indices = c.in[1];
  if (indices.rank() < 1) return Wrong(c, "rank");
  const int64_t length = indices.dims().back();
  if (length > x.rank()) return Wrong(c, "indices");
  const Dims strides = StridesOf(x.dims());
  const int64_t inner = Product(Dims(x.dims().begin() + length, x.dims().end()));
  const int64_t rows = Product(Dims(indices.dims().begin(), indices.dims().end() - 1));
  if (c.in[2].size() != rows * inner) return Wrong(c, "updates");
  std::vector<int64_t> to;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t part =
        PartOf(x.dims(), strides, 0, indices.integers().data() + r * length, length);
    if (part < 0) return Wrong(c, "an index out of range");
    for (int64_t k = 0; k < inner; ++k) to.push_back(part + k);
  }
  return Scatter(c, to);
}

// Source: the pseudocode of ONNX TensorScatter-24.
absl::Status TensorScatter(OpContext& c) {
  const Value &past = c.in[0], &update = c.in[1];
  const int64_t axis = AxisOf(c.Int("axis", -2), past.rank());
  if (axis < 1 || update.rank() != past.rank()) return Wrong(c, "axis or rank");
  const bool circular = c.Text("mode", "linear") == "circular";
  const int64_t slots = past.dims()[axis], tokens = update.dims()[axis];
  Dims written = past.dims();
  written[axis] = tokens;
  if (update.dims() != written) return Wrong(c, "extents");
  if (c.has(2) && c.in[2].dims() != Dims{past.dims()[0]}) return Wrong(c, "one index per sequence");
  const Dims strides = StridesOf(past.dims());
  std::vector<Pick> picks(static_cast<size_t>(past.size()));
  for (size_t i = 0; i < picks.size(); ++i) picks[i] = {0, static_cast<int64_t>(i)};
  bool good = tokens <= slots;
  ForEach(update.dims(), [&](int64_t i, const Dims& at) {
    const int64_t start = c.has(2) ? c.in[2].integers()[at[0]] : 0;
    int64_t slot = start + at[axis];
    if (circular && slots > 0) slot %= slots;
    good = good && start >= 0 && slot < slots;
    if (good) picks[Flat(at, strides) + (slot - at[axis]) * strides[axis]] = {1, i};
  });
  if (!good) return Wrong(c, "a write outside of the cache");
  (*c.out)[0] = Collect({&past, &update}, past.dims(), picks);
  return absl::OkStatus();
}

absl::Status OneHot(OpContext& c) {
  if (!AreScalars(c, 1, 1)) return Wrong(c, "depth");
  const Value& indices = c.in[0];
  const auto depth = static_cast<int64_t>(ScalarOf(c.in[1]));
  int64_t axis = c.Int("axis", -1);
  if (axis < 0) axis += indices.rank() + 1;
  if (axis < 0 || axis > indices.rank()) return Wrong(c, "axis");
  Dims dims = indices.dims();
  dims.insert(dims.begin() + axis, depth);
  const Dims strides = StridesOf(indices.dims());
  std::vector<int64_t> from(static_cast<size_t>(Product(dims)));
  ForEach(dims, [&](int64_t i, const Dims& at) {
    int64_t flat = 0;
    for (int64_t k = 0, s = 0; k < static_cast<int64_t>(at.size()); ++k) {
      if (k != axis) flat += at[k] * strides[s++];
    }
    const int64_t hot = indices.real() ? static_cast<int64_t>(indices.reals().value[flat])
                                       : indices.integers()[flat];
    from[i] = Index(hot, depth) == at[axis] && Index(hot, depth) >= 0 ? 1 : 0;
  });
  (*c.out)[0] = Take(c.in[2], dims, from);
  return absl::OkStatus();
}

absl::Status NonZero(OpContext& c) {
  const Value& x = c.in[0];
  std::vector<int64_t> found;
  std::vector<Dims> places;
  ForEach(x.dims(), [&](int64_t i, const Dims& at) {
    const bool zero = x.real() ? x.reals().value[i] == 0 : x.integers()[i] == 0;
    if (!zero) places.push_back(at);
  });
  for (int64_t k = 0; k < x.rank(); ++k) {
    for (const Dims& at : places) found.push_back(at[k]);
  }
  (*c.out)[0] = Value::FromIntegers(onnx::TensorProto::INT64,
                                    {x.rank(), static_cast<int64_t>(places.size())}, found);
  (*c.out)[0].doubtful = !x.exact();
  return absl::OkStatus();
}

absl::Status Compress(OpContext& c) {
  const bool flat = !c.HasAttribute("axis");
  const Value x = flat ? c.in[0].WithDims({c.in[0].size()}) : c.in[0];
  const int64_t axis = flat ? 0 : AxisOf(c.Int("axis", 0), x.rank());
  if (axis < 0) return Wrong(c, "axis");
  std::vector<int64_t> kept;
  const std::vector<int64_t>& condition = c.in[1].integers();
  for (size_t k = 0; k < condition.size() && static_cast<int64_t>(k) < x.dims()[axis]; ++k) {
    if (condition[k] != 0) kept.push_back(static_cast<int64_t>(k));
  }
  Dims dims = x.dims();
  dims[axis] = static_cast<int64_t>(kept.size());
  const Dims strides = StridesOf(x.dims());
  std::vector<int64_t> from(static_cast<size_t>(Product(dims)));
  ForEach(dims, [&](int64_t i, const Dims& at) {
    from[i] = Flat(at, strides) + (kept[at[axis]] - at[axis]) * strides[axis];
  });
  (*c.out)[0] = Take(x, dims, from);
  return absl::OkStatus();
}

absl::Status ReverseSequence(OpContext& c) {
  const Value& x = c.in[0];
  const int64_t batch = c.Int("batch_axis", 1), time = c.Int("time_axis", 0);
  if (AxisOf(batch, x.rank()) != batch || AxisOf(time, x.rank()) != time) return Wrong(c, "axis");
  const Dims strides = StridesOf(x.dims());
  std::vector<int64_t> from(static_cast<size_t>(x.size()));
  ForEach(x.dims(), [&](int64_t i, const Dims& at) {
    const int64_t length = c.in[1].integers()[at[batch]];
    const int64_t t = at[time] < length ? length - 1 - at[time] : at[time];
    from[i] = Flat(at, strides) + (t - at[time]) * strides[time];
  });
  (*c.out)[0] = Take(x, x.dims(), from);
  return absl::OkStatus();
}

constexpr OpEntry kIndexOps[] = {
    {"", "Gather", Gather},
    {"", "GatherElements", GatherElements},
    {"", "GatherND", GatherND},
    {"", "Scatter", ScatterElements},
    {"", "ScatterElements", ScatterElements},
    {"", "ScatterND", ScatterND},
    {"", "TensorScatter", TensorScatter},
    {"", "OneHot", OneHot},
    {"", "NonZero", NonZero},
    {"", "Compress", Compress},
    {"", "ReverseSequence", ReverseSequence},
};

}  // namespace

absl::Span<const OpEntry> IndexOps() { return kIndexOps; }

}  // namespace kvlift::oracle

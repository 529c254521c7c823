// Operators that move elements without changing them.
#include <algorithm>
#include <numeric>

#include "absl/status/status.h"
#include "oracle/core/op.h"

namespace kvlift::oracle {
namespace {

absl::Status Same(OpContext& c) {
  (*c.out)[0] = c.in[0];
  return absl::OkStatus();
}

absl::Status Dropout(OpContext& c) {
  if (!AreScalars(c, 1, 2)) return Wrong(c, "ratio or mode");
  if (c.has(2) && ScalarOf(c.in[2]) != 0) return NoMeaning(c, "training mode");
  (*c.out)[0] = c.in[0];
  if (c.wants(1)) {
    (*c.out)[1] = Value::FromIntegers(onnx::TensorProto::BOOL, c.in[0].dims(),
                                      std::vector<int64_t>(static_cast<size_t>(c.in[0].size()), 1));
  }
  return absl::OkStatus();
}

absl::Status Reshape(OpContext& c) {
  Dims dims = IntsOf(c, 1, "shape");
  const Value& x = c.in[0];
  const bool keep_zero = c.Int("allowzero", 0) != 0;
  int64_t known = 1, open = -1;
  for (size_t k = 0; k < dims.size(); ++k) {
    if (dims[k] == 0 && !keep_zero) {
      if (k >= x.dims().size()) return Wrong(c, "a 0 behind the rank");
      dims[k] = x.dims()[k];
    }
    if (dims[k] == -1) {
      if (open >= 0) return Wrong(c, "two unknown dims");
      open = static_cast<int64_t>(k);
    } else {
      known *= dims[k];
    }
  }
  if (open >= 0) dims[open] = known == 0 ? 0 : x.size() / known;
  if (Product(dims) != x.size()) return Wrong(c, "the number of elements changes");
  (*c.out)[0] = x.WithDims(std::move(dims));
  (*c.out)[0].doubtful = x.doubtful || (c.has(1) && c.in[1].doubtful);
  return absl::OkStatus();
}

absl::Status Flatten(OpContext& c) {
  const Value& x = c.in[0];
  int64_t axis = c.Int("axis", 1);
  if (axis < 0) axis += x.rank();
  if (axis < 0 || axis > x.rank()) return Wrong(c, "axis");
  const Dims front(x.dims().begin(), x.dims().begin() + axis);
  const Dims back(x.dims().begin() + axis, x.dims().end());
  (*c.out)[0] = x.WithDims({Product(front), Product(back)});
  return absl::OkStatus();
}

absl::Status Squeeze(OpContext& c) {
  const Value& x = c.in[0];
  std::vector<int64_t> axes = IntsOf(c, 1, "axes");
  const bool all = !c.has(1) && !c.HasAttribute("axes");
  for (int64_t& axis : axes) {
    axis = AxisOf(axis, x.rank());
    if (axis < 0 || x.dims()[axis] != 1) return Wrong(c, "axis");
  }
  Dims dims;
  for (int64_t k = 0; k < x.rank(); ++k) {
    const bool gone = all ? x.dims()[k] == 1 : std::find(axes.begin(), axes.end(), k) != axes.end();
    if (!gone) dims.push_back(x.dims()[k]);
  }
  (*c.out)[0] = x.WithDims(std::move(dims));
  return absl::OkStatus();
}

absl::Status Unsqueeze(OpContext& c) {
  const Value& x = c.in[0];
  std::vector<int64_t> axes = IntsOf(c, 1, "axes");
  const auto rank = x.rank() + static_cast<int64_t>(axes.size());
  for (int64_t& axis : axes) {
    axis = AxisOf(axis, rank);
    if (axis < 0) return Wrong(c, "axis");
  }
  Dims dims;
  size_t next = 0;
  for (int64_t k = 0; k < rank; ++k) {
    const bool fresh = std::find(axes.begin(), axes.end(), k) != axes.end();
    if (!fresh && next >= x.dims().size()) return Wrong(c, "axes");
    dims.push_back(fresh ? 1 : x.dims()[next++]);
  }
  (*c.out)[0] = x.WithDims(std::move(dims));
  return absl::OkStatus();
}

absl::Status Transpose(OpContext& c) {
  const Value& x = c.in[0];
  std::vector<int64_t> perm = c.Ints("perm");
  if (perm.empty()) {
    perm.resize(x.dims().size());
    std::iota(perm.rbegin(), perm.rend(), 0);
  }
  if (perm.size() != x.dims().size()) return Wrong(c, "perm");
  const Dims own = StridesOf(x.dims());
  Dims dims, strides;
  for (int64_t p : perm) {
    dims.push_back(x.dims()[p]);
    strides.push_back(own[p]);
  }
  std::vector<int64_t> from(static_cast<size_t>(x.size()));
  ForEach(dims, [&](int64_t i, const Dims& at) { from[i] = Flat(at, strides); });
  (*c.out)[0] = Take(x, dims, from);
  return absl::OkStatus();
}

absl::Status Concat(OpContext& c) {
  const int64_t axis = AxisOf(c.Int("axis", 1), c.in[0].rank());
  if (axis < 0) return Wrong(c, "axis");
  Dims dims = c.in[0].dims();
  dims[axis] = 0;
  std::vector<const Value*> sources;
  for (const Value& x : c.in) {
    if (x.rank() != c.in[0].rank() || x.type() != c.in[0].type()) return Wrong(c, "operands");
    for (int64_t k = 0; k < x.rank(); ++k) {
      if (k != axis && x.dims()[k] != dims[k]) return Wrong(c, "shapes that do not fit");
    }
    dims[axis] += x.dims()[axis];
    sources.push_back(&x);
  }
  std::vector<Pick> picks(static_cast<size_t>(Product(dims)));
  int64_t begin = 0;
  const Dims strides = StridesOf(dims);
  for (size_t s = 0; s < sources.size(); ++s) {
    ForEach(sources[s]->dims(), [&](int64_t i, const Dims& at) {
      picks[Flat(at, strides) + begin * strides[axis]] = {static_cast<int>(s), i};
    });
    begin += sources[s]->dims()[axis];
  }
  (*c.out)[0] = Collect(sources, dims, picks);
  return absl::OkStatus();
}

// Returns rows [begin, begin + count) of an axis.
Value Rows(const Value& x, int64_t axis, int64_t begin, int64_t count) {
  Dims dims = x.dims();
  dims[axis] = count;
  const Dims strides = StridesOf(x.dims());
  std::vector<int64_t> from(static_cast<size_t>(Product(dims)));
  ForEach(dims,
          [&](int64_t i, const Dims& at) { from[i] = Flat(at, strides) + begin * strides[axis]; });
  return Take(x, dims, from);
}

absl::Status Split(OpContext& c) {
  const Value& x = c.in[0];
  const int64_t axis = AxisOf(c.Int("axis", 0), x.rank());
  if (axis < 0) return Wrong(c, "axis");
  std::vector<int64_t> sizes = IntsOf(c, 1, "split");
  const auto parts = static_cast<int64_t>(c.out->size());
  if (sizes.empty()) {
    const int64_t each = (x.dims()[axis] + parts - 1) / parts;
    for (int64_t k = 0, left = x.dims()[axis]; k < parts; ++k) {
      sizes.push_back(std::min(each, left));
      left -= sizes.back();
    }
  }
  if (static_cast<int64_t>(sizes.size()) != parts ||
      std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) != x.dims()[axis]) {
    return Wrong(c, "sizes");
  }
  int64_t begin = 0;
  for (int64_t k = 0; k < parts; ++k) {
    (*c.out)[k] = Rows(x, axis, begin, sizes[k]);
    begin += sizes[k];
  }
  return absl::OkStatus();
}

absl::Status Slice(OpContext& c) {
  const Value& x = c.in[0];
  const std::vector<int64_t> starts = IntsOf(c, 1, "starts"), ends = IntsOf(c, 2, "ends");
  std::vector<int64_t> axes = IntsOf(c, 3, "axes");
  std::vector<int64_t> steps = c.has(4) ? c.in[4].integers() : std::vector<int64_t>();
  if (axes.empty()) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  steps.resize(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size()) return Wrong(c, "operands");
  Dims dims = x.dims(), first(dims.size(), 0), step(dims.size(), 1);
  for (size_t k = 0; k < axes.size(); ++k) {
    const int64_t axis = AxisOf(axes[k], x.rank());
    if (axis < 0 || steps[k] == 0) return Wrong(c, "axis or step");
    const int64_t extent = x.dims()[axis];
    const bool down = steps[k] < 0;
    const auto from_front = [&](int64_t at) {
      if (at >= 0) return at;
      return at < -extent ? int64_t{-1} : at + extent;
    };
    // The operator's text clamps a start to [0, extent - 1] and an end to [-1, extent - 1] if the
    // step is negative, and both to [0, extent] if it is positive.
    const int64_t last = down ? extent - 1 : extent;
    const int64_t begin = std::max<int64_t>(std::min(from_front(starts[k]), last), 0);
    const int64_t end = std::max<int64_t>(std::min(from_front(ends[k]), last), down ? -1 : 0);
    const int64_t distance = extent == 0 ? 0 : down ? begin - end : end - begin;
    const int64_t stride = down ? -std::max(steps[k], -(int64_t{1} << 40)) : steps[k];
    dims[axis] = distance <= 0 ? 0 : (distance - 1) / stride + 1;
    first[axis] = begin;
    step[axis] = down ? -stride : stride;
  }
  const Dims strides = StridesOf(x.dims());
  std::vector<int64_t> from(static_cast<size_t>(Product(dims)));
  ForEach(dims, [&](int64_t i, const Dims& at) {
    int64_t flat = 0;
    for (size_t k = 0; k < at.size(); ++k) flat += (first[k] + at[k] * step[k]) * strides[k];
    from[i] = flat;
  });
  (*c.out)[0] = Take(x, dims, from);
  return absl::OkStatus();
}

absl::Status Expand(OpContext& c) {
  Dims dims;
  if (!Broadcast(c.in[0].dims(), c.in[1].integers(), &dims)) return Wrong(c, "shape");
  if (!IsExtent(dims)) return Wrong(c, "shape");
  (*c.out)[0] = Take(c.in[0], dims, BroadcastIndex(c.in[0].dims(), dims));
  return absl::OkStatus();
}

absl::Status Tile(OpContext& c) {
  const Value& x = c.in[0];
  const std::vector<int64_t>& repeats = c.in[1].integers();
  if (repeats.size() != x.dims().size()) return Wrong(c, "repeats");
  Dims dims = x.dims();
  for (size_t k = 0; k < dims.size(); ++k) dims[k] *= repeats[k];
  if (!IsExtent(dims)) return Wrong(c, "repeats");
  const Dims strides = StridesOf(x.dims());
  std::vector<int64_t> from(static_cast<size_t>(Product(dims)));
  ForEach(dims, [&](int64_t i, const Dims& at) {
    int64_t flat = 0;
    for (size_t k = 0; k < at.size(); ++k) flat += at[k] % x.dims()[k] * strides[k];
    from[i] = flat;
  });
  (*c.out)[0] = Take(x, dims, from);
  return absl::OkStatus();
}

int64_t Reflected(int64_t at, int64_t extent) {
  if (extent == 1) return 0;
  const int64_t period = 2 * (extent - 1);
  at = ((at % period) + period) % period;
  return at < extent ? at : period - at;
}

absl::Status Pad(OpContext& c) {
  const Value& x = c.in[0];
  const std::vector<int64_t> pads = IntsOf(c, 1, "pads");
  std::vector<int64_t> axes = c.has(3) ? c.in[3].integers() : std::vector<int64_t>();
  if (axes.empty()) {
    axes.resize(x.dims().size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (pads.size() != 2 * axes.size()) return Wrong(c, "pads");
  Dims dims = x.dims(), front(dims.size(), 0);
  for (size_t k = 0; k < axes.size(); ++k) {
    const int64_t axis = AxisOf(axes[k], x.rank());
    if (axis < 0) return Wrong(c, "axis");
    front[axis] = pads[k];
    dims[axis] += pads[k] + pads[k + axes.size()];
    if (dims[axis] < 0) return Wrong(c, "pads");
  }
  const std::string mode = c.Text("mode", "constant");
  Value fill = c.has(2) ? c.in[2] : ZeroOf(x.type());
  if (!c.has(2) && c.HasAttribute("value")) {
    Reals one(1);
    one.value[0] = static_cast<double>(c.Float("value", 0));
    fill = Value::FromReals(x.type(), {}, std::move(one));
  }
  const Dims strides = StridesOf(x.dims());
  std::vector<int64_t> from(static_cast<size_t>(Product(dims)));
  ForEach(dims, [&](int64_t i, const Dims& at) {
    int64_t flat = 0;
    bool inside = true;
    for (size_t k = 0; k < at.size(); ++k) {
      const int64_t extent = x.dims()[k];
      int64_t p = at[k] - front[k];
      if (p < 0 || p >= extent) {
        if (mode == "constant" || extent == 0) inside = false;
        if (mode == "edge") p = std::clamp<int64_t>(p, 0, extent - 1);
        if (mode == "reflect") p = Reflected(p, extent);
        if (mode == "wrap") p = ((p % extent) + extent) % extent;
      }
      flat += p * strides[k];
    }
    from[i] = inside ? flat : -1;
  });
  (*c.out)[0] = Take(x, dims, from, fill);
  return absl::OkStatus();
}

absl::Status Trilu(OpContext& c) {
  const Value& x = c.in[0];
  if (x.rank() < 2 || !AreScalars(c, 1, 1)) return Wrong(c, "rank, or k");
  const int64_t k = c.has(1) ? c.in[1].integers()[0] : 0;
  const bool upper = c.Int("upper", 1) != 0;
  std::vector<int64_t> from(static_cast<size_t>(x.size()));
  ForEach(x.dims(), [&](int64_t i, const Dims& at) {
    const int64_t row = at[at.size() - 2], column = at[at.size() - 1];
    const bool kept = upper ? column - row >= k : column - row <= k;
    from[i] = kept ? i : -1;
  });
  (*c.out)[0] = Take(x, x.dims(), from);
  return absl::OkStatus();
}

absl::Status Where(OpContext& c) {
  Dims dims;
  if (!Broadcast(c.in[0].dims(), c.in[1].dims(), &dims) ||
      !Broadcast(dims, c.in[2].dims(), &dims)) {
    return Wrong(c, "shapes that do not fit");
  }
  const auto a = BroadcastIndex(c.in[0].dims(), dims), b = BroadcastIndex(c.in[1].dims(), dims),
             d = BroadcastIndex(c.in[2].dims(), dims);
  std::vector<Pick> picks(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    picks[i] = c.in[0].integers()[a[i]] != 0 ? Pick{0, b[i]} : Pick{1, d[i]};
  }
  (*c.out)[0] = Collect({&c.in[1], &c.in[2]}, dims, picks);
  return absl::OkStatus();
}

// Moves groups of channels to square blocks of side `blocksize` in the plane; SpaceToDepth is the
// inverse.
absl::Status DepthToSpace(OpContext& c) {
  const Value& x = c.in[0];
  const int64_t block = c.Int("blocksize", 1);
  if (x.rank() != 4 || block < 1 || x.dims()[1] % (block * block) != 0) return Wrong(c, "shape");
  const bool column_first = c.Text("mode", "DCR") == "CRD";
  const Dims in = StridesOf(x.dims());
  const int64_t channels = x.dims()[1] / (block * block);
  const Dims dims = {x.dims()[0], channels, x.dims()[2] * block, x.dims()[3] * block};
  std::vector<int64_t> from(static_cast<size_t>(x.size()));
  ForEach(dims, [&](int64_t i, const Dims& at) {
    const int64_t inner = at[2] % block * block + at[3] % block;
    const int64_t channel = column_first ? at[1] * block * block + inner : inner * channels + at[1];
    from[i] = at[0] * in[0] + channel * in[1] + at[2] / block * in[2] + at[3] / block * in[3];
  });
  (*c.out)[0] = Take(x, dims, from);
  return absl::OkStatus();
}

absl::Status SpaceToDepth(OpContext& c) {
  const Value& x = c.in[0];
  const int64_t block = c.Int("blocksize", 1);
  if (x.rank() != 4 || block < 1 || x.dims()[2] % block != 0 || x.dims()[3] % block != 0) {
    return Wrong(c, "shape");
  }
  const Dims in = StridesOf(x.dims());
  const int64_t channels = x.dims()[1];
  const Dims dims = {x.dims()[0], channels * block * block, x.dims()[2] / block,
                     x.dims()[3] / block};
  std::vector<int64_t> from(static_cast<size_t>(x.size()));
  ForEach(dims, [&](int64_t i, const Dims& at) {
    const int64_t inner = at[1] / channels, channel = at[1] % channels;
    from[i] = at[0] * in[0] + channel * in[1] + (at[2] * block + inner / block) * in[2] +
              (at[3] * block + inner % block) * in[3];
  });
  (*c.out)[0] = Take(x, dims, from);
  return absl::OkStatus();
}

constexpr OpEntry kMovementOps[] = {
    {"", "Identity", Same},
    {"", "Dropout", Dropout},
    {"", "Reshape", Reshape},
    {"", "Flatten", Flatten},
    {"", "Squeeze", Squeeze},
    {"", "Unsqueeze", Unsqueeze},
    {"", "Transpose", Transpose},
    {"", "Concat", Concat},
    {"", "Split", Split},
    {"", "Slice", Slice},
    {"", "Expand", Expand},
    {"", "Tile", Tile},
    {"", "Pad", Pad},
    {"", "Trilu", Trilu},
    {"", "Where", Where},
    {"", "DepthToSpace", DepthToSpace},
    {"", "SpaceToDepth", SpaceToDepth},
};

}  // namespace

absl::Span<const OpEntry> MovementOps() { return kMovementOps; }

}  // namespace kvlift::oracle

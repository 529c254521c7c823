// Conv with any number of spatial dimensions.
#include <algorithm>

#include "base/status.h"
#include "oracle/core/op.h"
#include "oracle/core/sums.h"

namespace kvlift::oracle {
namespace {

// X is [B, G * C, in...], W [F, C, kernel...]; F is a multiple of the number of groups G.
struct Windows {
  int64_t groups = 1, channels = 0, filters = 0;
  Dims in, kernel, out;
  Dims strides, dilations, before;  // by spatial dimension; `before`: padding in front
};

absl::Status ReadPadding(OpContext& c, Windows* w) {
  const size_t rank = w->in.size();
  const auto read = [&](std::string_view name, size_t count, int64_t fallback) {
    std::vector<int64_t> values = c.Ints(name);
    if (values.empty()) values.assign(count, fallback);
    return values;
  };
  w->strides = read("strides", rank, 1);
  w->dilations = read("dilations", rank, 1);
  const std::vector<int64_t> pads = read("pads", 2 * rank, 0);
  if (w->strides.size() != rank || w->dilations.size() != rank || pads.size() != 2 * rank) {
    return Wrong(c, "attributes that do not fit");
  }
  const std::string automatic = c.Text("auto_pad", "NOTSET");
  for (size_t d = 0; d < rank; ++d) {
    const int64_t stride = w->strides[d];
    if (stride < 1 || w->dilations[d] < 1) return Wrong(c, "strides below 1");
    const int64_t reach = (w->kernel[d] - 1) * w->dilations[d] + 1;
    int64_t before = 0, after = 0;
    if (automatic == "NOTSET") {
      before = pads[d];
      after = pads[d + rank];
    } else if (automatic != "VALID") {
      // There are as many outputs as strides fit into the input. An odd element of padding goes to
      // the side that auto_pad names.
      const int64_t outputs = (w->in[d] + stride - 1) / stride;
      const int64_t all = std::max<int64_t>(0, (outputs - 1) * stride + reach - w->in[d]);
      before = automatic == "SAME_LOWER" ? (all + 1) / 2 : all / 2;
      after = all - before;
    }
    const int64_t room = w->in[d] + before + after - reach;
    if (room < 0) return Wrong(c, "a kernel larger than its input");
    w->before.push_back(before);
    w->out.push_back(room / stride + 1);
  }
  return absl::OkStatus();
}

absl::Status ReadWindows(OpContext& c, Windows* w) {
  if (c.in.size() < 2 || !c.in[0].real() || !c.in[1].real()) return NoMeaning(c, "integers");
  const Dims &x = c.in[0].dims(), &weights = c.in[1].dims();
  w->groups = c.Int("group", 1);
  const bool fits = x.size() >= 3 && weights.size() == x.size() && w->groups >= 1 &&
                    x[1] == weights[1] * w->groups && weights[0] % w->groups == 0;
  if (!fits || (c.has(2) && c.in[2].dims() != Dims{weights[0]})) return Wrong(c, "shapes");
  w->channels = weights[1];
  w->filters = weights[0];
  w->in.assign(x.begin() + 2, x.end());
  w->kernel.assign(weights.begin() + 2, weights.end());
  return ReadPadding(c, w);
}

absl::Status Conv(OpContext& c) {
  Windows w;
  KV_RETURN_IF_ERROR(ReadWindows(c, &w));
  const Reals &x = c.in[0].reals(), &weights = c.in[1].reals();
  const int64_t batch = c.in[0].dims()[0], taps = Product(w.kernel), places = Product(w.in);
  Dims dims = {batch, w.filters};
  dims.insert(dims.end(), w.out.begin(), w.out.end());
  KV_RETURN_IF_ERROR(c.Spend(Product(dims) * w.channels * taps * 12));
  const Dims strides = StridesOf(w.in);
  const int32_t type = c.in[0].type();
  Reals out(Product(dims));
  ForEach(dims, [&](int64_t i, const Dims& at) {
    const int64_t filter = at[1], group = filter / (w.filters / w.groups);
    Sum sum;
    if (c.has(2)) sum.Add(c.in[2].reals().At(filter));
    ForEach(w.kernel, [&](int64_t tap, const Dims& offset) {
      int64_t place = 0;
      for (size_t d = 0; d < w.in.size(); ++d) {
        const int64_t p = at[d + 2] * w.strides[d] + offset[d] * w.dilations[d] - w.before[d];
        if (p < 0 || p >= w.in[d]) return;
        place += p * strides[d];
      }
      for (int64_t k = 0; k < w.channels; ++k) {
        const int64_t channel = (at[0] * w.groups + group) * w.channels + k;
        sum.Add(Times(x.At(channel * places + place),
                      weights.At((filter * w.channels + k) * taps + tap)));
      }
    });
    out.Set(i, sum.Result(type, 1));
  });
  (*c.out)[0] = Value::FromReals(type, dims, std::move(out));
  return absl::OkStatus();
}

constexpr OpEntry kConvOps[] = {{"", "Conv", Conv}};

}  // namespace

absl::Span<const OpEntry> ConvOps() { return kConvOps; }

}  // namespace kvlift::oracle

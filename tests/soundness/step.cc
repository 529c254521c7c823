#include "soundness/step.h"

#include <algorithm>

#include "contract/layout.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace kvlift::soundness {

using oracle::Dims;

bool Step::ragged() const {
  return padded() || std::any_of(past.begin(), past.end(), [&](int64_t p) { return p != past[0]; });
}

Step Step::Alone(int64_t sequence) const {
  Step alone = *this;
  alone.tokens = RealTokens(sequence);
  alone.real.clear();
  return alone;
}

std::string Step::Text() const {
  return fmt::format("B = {}, S = {}{}, P = {}, M = {}, masks {}, positions {}, up to {}",
                     sequences, tokens,
                     padded() ? fmt::format(" ({} real)", fmt::join(real, "/")) : "",
                     fmt::join(past, "/"), slots, mask_style, position_style, amplitude);
}

void Next(const Dims& dims, Dims* at) {
  for (int64_t k = std::ssize(dims) - 1; k >= 0; --k) {
    if (++(*at)[k] < dims[k]) return;
    (*at)[k] = 0;
  }
}

int64_t Place(const Dims& dims, const Dims& at) {
  int64_t place = 0;
  for (size_t k = 0; k < dims.size(); ++k) place = place * dims[k] + at[k];
  return place;
}

const onnx::ValueInfoProto* Find(
    const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& all, const std::string& name) {
  for (const auto& info : all) {
    if (info.name() == name) return &info;
  }
  return nullptr;
}

int BatchAxis(const onnx::ValueInfoProto& info) {
  const auto& shape = info.type().tensor_type().shape();
  for (int k = 0; k < shape.dim_size(); ++k) {
    if (shape.dim(k).dim_param() == "B") return k;
  }
  return -1;
}

bool TellsLength(const onnx::ValueInfoProto& info) {
  for (const auto& dim : info.type().tensor_type().shape().dim()) {
    if (dim.dim_param() == "P" || dim.dim_param() == "T" || dim.dim_param() == "P + S") return true;
  }
  return false;
}

int AxisOf(const std::string& layout, char letter) {
  const std::vector<std::string> axes = AxesOfLayout(layout);
  for (size_t k = 0; k < axes.size(); ++k) {
    if (axes[k] == std::string(1, letter)) return static_cast<int>(k);
  }
  return -1;
}

}  // namespace kvlift::soundness

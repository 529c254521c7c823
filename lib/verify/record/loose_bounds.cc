#include "verify/record/loose_bounds.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ir/types.h"
#include "verify/report/compare.h"

namespace kvlift {

OracleRun LooseBounds::Converted(const exec::Feeds& feeds,
                                 const std::map<std::string, exec::Tensor>& gaps,
                                 const exec::Fetches& got, const std::string& where) {
  std::map<std::string, exec::Tensor> wider;
  for (const auto& [name, value] : feeds) {
    if (!IsFloatType(value.type()) || value.view().bytes() < 0) continue;
    const auto stored = stored_.find(name);
    exec::Tensor gap = stored != stored_.end()
                           ? StorageErrors(value.view(), stored->second)
                           : exec::Tensor::Zeros(onnx::TensorProto::DOUBLE, value.shape());
    const auto known = gaps.find(name);
    const bool has_gap = known != gaps.end() && known->second.shape() == value.shape();
    for (int64_t i = 0; i < gap.size(); ++i) {
      const double size = std::fabs(exec::ElementAsDouble(value.view(), i));
      const double half = std::isfinite(size) ? EpsilonOf(value.type()) / 2 * size : 0;
      double& widest = gap.span<double>()[i];
      widest = std::max({widest, half, has_gap ? known->second.span<double>()[i] : 0});
    }
    wider[name] = std::move(gap);
  }
  return bounds_->Converted(feeds, wider, got, where);
}

}  // namespace kvlift

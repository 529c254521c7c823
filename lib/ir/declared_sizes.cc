#include "ir/declared_sizes.h"

#include <algorithm>

#include "fmt/format.h"

namespace kvlift {
namespace {

// Returns "P + 4" for "P + S" if S is 4.
std::string WithNumbers(const std::string& sum, absl::Span<const NamedSize> sizes) {
  std::string text;
  for (size_t begin = 0; begin <= sum.size();) {
    const size_t end = std::min(sum.find('+', begin), sum.size());
    std::string part = sum.substr(begin, end - begin);
    part.erase(0, std::min(part.find_first_not_of(' '), part.size()));
    part.erase(part.find_last_not_of(' ') + 1);
    begin = end + 1;
    for (const NamedSize& size : sizes) {
      if (size.name == part) part = fmt::format("{}", size.size);
    }
    text += (text.empty() ? "" : " + ") + part;
  }
  return text;
}

}  // namespace

void DeclareSizes(absl::Span<const NamedSize> sizes, onnx::GraphProto* graph) {
  for (onnx::ValueInfoProto& input : *graph->mutable_input()) {
    if (!input.type().tensor_type().has_shape()) continue;
    auto* shape = input.mutable_type()->mutable_tensor_type()->mutable_shape();
    for (auto& dim : *shape->mutable_dim()) {
      const auto size = std::find_if(sizes.begin(), sizes.end(), [&](const NamedSize& known) {
        return dim.has_dim_param() && known.name == dim.dim_param();
      });
      if (size != sizes.end()) {
        dim.set_dim_value(size->size);
      } else if (dim.dim_param().find('+') != std::string::npos) {
        dim.set_dim_param(WithNumbers(dim.dim_param(), sizes));
      }
    }
  }
}

}  // namespace kvlift

#include "ir/declared_sizes.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

constexpr char kOperators[] = "+-*/%(),";

std::vector<std::string> PartsBetween(const char* signs, const std::string& text) {
  std::vector<std::string> parts = absl::StrSplit(text, absl::ByAnyChar(signs));
  for (std::string& part : parts) absl::StripAsciiWhitespace(&part);
  return parts;
}

// Returns true if operators join a number or one of the names to something else.
bool IsExpression(const std::string& text, const NamesOfSizes& names) {
  const std::vector<std::string> parts = PartsBetween(kOperators, text);
  return std::any_of(parts.begin(), parts.end(), [&](const std::string& part) {
    return names.contains(part) ||
           (!part.empty() && std::all_of(part.begin(), part.end(), absl::ascii_isdigit));
  });
}

std::vector<std::string> TextsIn(const onnx::GraphProto& graph) {
  std::vector<std::string> texts;
  for (const onnx::ValueInfoProto& input : graph.input()) {
    for (const auto& dim : input.type().tensor_type().shape().dim()) {
      if (!dim.dim_param().empty()) texts.push_back(dim.dim_param());
    }
  }
  return texts;
}

// Returns "P + 4" for "P + S" if S is 4.
std::string WithNumbers(const std::string& sum, absl::Span<const NamedSize> sizes) {
  std::vector<std::string> parts = SummandsOf(sum);
  for (std::string& part : parts) {
    for (const NamedSize& size : sizes) {
      if (size.name == part) part = fmt::format("{}", size.size);
    }
  }
  return absl::StrJoin(parts, " + ");
}

}  // namespace

int64_t LargestDeclaredSize(const onnx::GraphProto& graph) {
  int64_t largest = 0;
  for (const auto* values : {&graph.input(), &graph.output()}) {
    for (const onnx::ValueInfoProto& value : *values) {
      for (const auto& dim : value.type().tensor_type().shape().dim()) {
        largest = std::max<int64_t>(largest, dim.dim_value());
      }
    }
  }
  return largest;
}

std::vector<std::string> SummandsOf(const std::string& text) { return PartsBetween("+", text); }

NamesOfSizes NamesOfSizesIn(const onnx::GraphProto& graph) {
  NamesOfSizes plain, names;
  const std::vector<std::string> texts = TextsIn(graph);
  for (const std::string& text : texts) {
    if (text.find_first_of(kOperators) == std::string::npos) plain.insert(text);
  }
  names = plain;
  for (const std::string& text : texts) {
    if (!IsExpression(text, plain)) names.insert(text);
  }
  return names;
}

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

std::shared_ptr<const onnx::ModelProto> WithNamesApart(
    std::shared_ptr<const onnx::ModelProto> model, const NamesOfSizes& names,
    const absl::flat_hash_set<std::string>& keep) {
  struct Copy {
    std::shared_ptr<const onnx::ModelProto> original;
    onnx::ModelProto proto;
  };
  auto apart = std::make_shared<Copy>();
  apart->proto = *model;
  apart->original = std::move(model);
  const std::vector<std::string> texts = TextsIn(apart->proto.graph());
  absl::flat_hash_set<std::string> taken(texts.begin(), texts.end());
  for (onnx::ValueInfoProto& input : *apart->proto.mutable_graph()->mutable_input()) {
    if (!input.type().tensor_type().has_shape() || keep.contains(input.name())) continue;
    auto* shape = input.mutable_type()->mutable_tensor_type()->mutable_shape();
    for (int k = 0; k < shape->dim_size(); ++k) {
      auto* dim = shape->mutable_dim(k);
      if (!names.contains(dim->dim_param())) continue;
      std::string name = fmt::format("{}_of_{}_{}", dim->dim_param(), input.name(), k);
      for (char& c : name) {
        if (std::string_view(kOperators).find(c) != std::string_view::npos) c = '_';
      }
      while (!taken.insert(name).second) name += '_';
      dim->set_dim_param(name);
    }
  }
  return {apart, &apart->proto};
}

std::shared_ptr<onnx::ModelProto> WithSizes(const onnx::ModelProto& model,
                                            absl::Span<const NamedSize> sizes) {
  auto declared = std::make_shared<onnx::ModelProto>(model);
  DeclareSizes(sizes, declared->mutable_graph());
  return declared;
}

}  // namespace kvlift

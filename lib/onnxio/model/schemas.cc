#include "onnxio/model/schemas.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "onnx/common/constants.h"
#include "onnx/defs/shape_inference.h"
#include "onnxio/model/operators.h"

namespace kvlift {
namespace {

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Spaces are ignored, even within an ellipsis.
bool IsReadable(std::string_view equation) {
  std::string terms;
  for (const char c : equation) {
    if (c != ' ') terms += c;
  }
  std::string_view rest = std::string_view(terms).substr(0, terms.find("->"));
  bool ellipsis = false;
  while (!rest.empty()) {
    if (rest.substr(0, 3) == "..." && !ellipsis) {
      ellipsis = true;
      rest.remove_prefix(3);
      continue;
    }
    if (rest[0] == ',') ellipsis = false;
    if (rest[0] != ',' && !IsLetter(rest[0])) return false;
    rest.remove_prefix(1);
  }
  return true;
}

class Safe final : public onnx::ISchemaRegistry {
 public:
  Safe() {
    const auto& range = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map();
    for (int version = 1; version <= range.at(onnx::ONNX_DOMAIN).second; ++version) {
      const onnx::OpSchema* schema =
          onnx::OpSchemaRegistry::Schema("Einsum", version, onnx::ONNX_DOMAIN);
      if (schema == nullptr || einsum_.contains(schema)) continue;
      auto copy = std::make_unique<onnx::OpSchema>(*schema);
      copy->TypeAndShapeInferenceFunction(
          [infer = schema->GetTypeAndShapeInferenceFunction()](onnx::InferenceContext& context) {
            const onnx::AttributeProto* equation = context.getAttribute("equation");
            if (equation != nullptr && !IsReadable(equation->s())) {
              fail_shape_inference("Einsum: the equation has something else than letters in it");
            }
            infer(context);
          });
      einsum_.emplace(schema, std::move(copy));
    }
  }

  const onnx::OpSchema* GetSchema(const std::string& key, int version,
                                  const std::string& domain) const override {
    const onnx::OpSchema* schema =
        onnx::OpSchemaRegistry::Instance()->GetSchema(key, version, domain);
    const auto it = einsum_.find(schema);
    return it == einsum_.end() ? schema : it->second.get();
  }

 private:
  absl::flat_hash_map<const onnx::OpSchema*, std::unique_ptr<onnx::OpSchema>> einsum_;
};

}  // namespace

const onnx::ISchemaRegistry& SafeSchemas() {
  RegisterOperators();
  static const Safe safe;
  return safe;
}

}  // namespace kvlift

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/mutate.h"
#include "nlohmann/json.hpp"

namespace kvlift::fuzz {
namespace {

using Json = nlohmann::ordered_json;

void Collect(Json& value, std::vector<Json*>& values) {
  values.push_back(&value);
  if (!value.is_structured()) return;
  for (Json& part : value) Collect(part, values);
}

Json SomeScalar(std::mt19937& rng) {
  switch (rng() % 8) {
    case 0:
      return nullptr;
    case 1:
      return rng() % 2 == 0;
    case 2:
      return Canaries()[rng() % Canaries().size()];
    case 3:
      return std::string(rng() % 3, 'B');
    case 4:
      return rng() % 2 == 0 ? INT64_MAX : INT64_MIN;
    case 5:
      return rng() % 2 == 0 ? 1e308 : -0.5;
    default:
      return static_cast<int64_t>(rng() % 9) - 2;
  }
}

// Replaces, removes or duplicates a value, or swaps two values.
void ChangeJson(Json& document, std::mt19937& rng) {
  std::vector<Json*> values;
  Collect(document, values);
  Json& value = *values[rng() % values.size()];
  Json& other = *values[rng() % values.size()];
  switch (rng() % 6) {
    case 0:
      if (!value.empty() && value.is_structured())
        value.erase(std::next(value.begin(), rng() % value.size()));
      break;
    case 1:
      if (value.is_array())
        value.push_back(Json(value.empty() ? Json() : value[rng() % value.size()]));
      break;
    case 2:
      value = Json(other);  // a copy first, since one value may contain the other
      break;
    case 3: {
      Json first(value), second(other);
      value = std::move(second);
      if (first.is_primitive() && value.is_primitive()) other = std::move(first);
      break;
    }
    default:
      if (value.is_primitive() || rng() % 4 == 0) value = SomeScalar(rng);
      break;
  }
}

std::string MutateBytes(std::string bytes, std::mt19937& rng) {
  for (size_t n = 1 + rng() % 4; n > 0 && !bytes.empty(); --n) {
    const size_t at = rng() % bytes.size();
    switch (rng() % 4) {
      case 0:
        bytes[at] = static_cast<char>(rng());
        break;
      case 1:
        bytes.erase(at, 1 + rng() % 8);
        break;
      case 2:
        bytes.insert(at, bytes.substr(rng() % bytes.size(), rng() % 16));
        break;
      default:
        bytes.insert(at, Canaries()[rng() % Canaries().size()]);
        break;
    }
  }
  return bytes;
}

}  // namespace

std::optional<std::string> MutateForm(Form form, std::string_view bytes, std::mt19937& rng) {
  if (form == Form::kModel) {
    onnx::ModelProto model;
    if (!model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || !model.has_graph()) {
      return std::nullopt;
    }
    MutateModel(&model, rng);
    return model.SerializeAsString();
  }
  if (form == Form::kJson) {
    Json document = Json::parse(bytes, nullptr, /*allow_exceptions=*/false);
    if (document.is_discarded()) return std::nullopt;
    for (size_t changes = 1 + rng() % 3; changes > 0; --changes) ChangeJson(document, rng);
    return document.dump(1, ' ', false, Json::error_handler_t::replace);
  }
  return std::nullopt;
}

std::string MutateInput(const Target& target, std::string bytes, std::mt19937& rng) {
  const unsigned by_bytes = target.name == "load" ? 2 : 16;
  if (rng() % by_bytes != 0) {
    if (auto changed = MutateForm(target.form, bytes, rng)) return *std::move(changed);
  }
  return MutateBytes(std::move(bytes), rng);
}

}  // namespace kvlift::fuzz

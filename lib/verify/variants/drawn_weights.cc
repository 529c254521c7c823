#include "verify/variants/drawn_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "exec/memory/tensor.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "ir/operators/operator_traits.h"
#include "ir/spans.h"
#include "ir/tensor_data.h"
#include "ir/types.h"
#include "proof/graphs/pair.h"
#include "verify/inputs/ledger.h"
#include "verify/inputs/stimulus.h"
#include "verify/variants/other_weights.h"
#include "verify/variants/weight_places.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

// The number of numbers that are drawn. Each weight repeats them from an offset of its own.
constexpr int64_t kNumbers = (1 << 20) + 7;

// The use of an initialiser by the node that reads it.
enum class Role { kProduct, kTable, kNorm, kBias, kScale };

struct WeightReader {
  Role role = Role::kProduct;
  int64_t summed = 0;   // the length of the product's sum; 0: it is an extent of the initialiser
  bool turned = false;  // the sum runs along the last axis, not along the last but one
};

absl::flat_hash_map<std::string, WeightReader> WeightReadersOf(const onnx::GraphProto& graph) {
  absl::flat_hash_map<std::string, WeightReader> readers;
  for (const onnx::NodeProto& node : graph.node()) {
    const std::string& op = node.op_type();
    for (int k = 0; k < node.input_size(); ++k) {
      WeightReader reader;
      if (op == "Gather" && k == 0) {
        reader.role = Role::kTable;
      } else if (IsProductOfPackedWeights(op)) {
        reader.summed = IntAttribute(node, "K", 0);
        if (k == 2) reader.role = Role::kScale;
      } else if ((op == "DequantizeLinear" || op == "QuantizeLinear") && k == 1) {
        reader.role = Role::kScale;
      } else if (op == "Add" || (op == "Gemm" && k == 2)) {
        reader.role = Role::kBias;
      } else if (op != "MatMul" && op != "Gemm" && op != "Conv") {
        reader.role = Role::kNorm;
      } else if (op == "Gemm" && k == 1) {
        reader.turned = IntAttribute(node, "transB", 0) != 0;
      }
      readers[node.input(k)] = reader;
    }
  }
  return readers;
}

bool IsDrawn(int32_t type) {
  return IsFloatType(type) || (IsIntegerType(type) && ElementBits(type) <= 8);
}

}  // namespace

class DrawnWeights::Store {
 public:
  explicit Store(uint64_t seed) : numbers_(kNumbers) {
    for (int64_t i = 0; i < kNumbers; ++i) {
      numbers_[static_cast<size_t>(i)] =
          static_cast<float>(Noise(seed, 101, static_cast<uint64_t>(i), 0));
    }
  }

  absl::StatusOr<TensorProto> Draw(const TensorProto& tensor, const std::string& key,
                                   const WeightReader& reader) {
    KV_ASSIGN_OR_RETURN(const int64_t size, NumElements(tensor));
    std::shared_ptr<const SpanSource>& source = sources_[key];
    if (source == nullptr) {
      KV_ASSIGN_OR_RETURN(std::string bytes, BytesOf(tensor, size, reader));
      source = SourceOf(std::move(bytes));
    }
    return SpanTensor(tensor, tensor.data_type(), *source);
  }

 private:
  absl::StatusOr<std::string> BytesOf(const TensorProto& tensor, int64_t size,
                                      const WeightReader& reader) {
    KV_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(tensor.data_type(), size));
    const int64_t begin = static_cast<int64_t>(sources_.size()) * 7919 % kNumbers;
    if (!IsFloatType(tensor.data_type())) {
      return Repeated(std::string(reinterpret_cast<const char*>(numbers_.data()),
                                  numbers_.size() * sizeof(float)),
                      begin * static_cast<int64_t>(sizeof(float)), bytes);
    }
    double centre = 0, spread = 0.1;
    if (reader.role == Role::kTable) spread = 1.7;
    if (reader.role == Role::kNorm) centre = 1;
    if (reader.role == Role::kScale) centre = spread = 0.01;
    if (reader.role == Role::kProduct && tensor.dims_size() > 0) {
      const int last = tensor.dims_size() - 1;
      const int along = reader.turned || last == 0 ? last : last - 1;
      const int64_t summed = reader.summed > 0 ? reader.summed : tensor.dims(along);
      spread = std::sqrt(3.0 / static_cast<double>(std::max<int64_t>(1, summed)));
    }
    exec::Tensor block(tensor.data_type(), {std::min(size, kNumbers)});
    for (int64_t i = 0; i < block.size(); ++i) {
      const double noise = numbers_[static_cast<size_t>((begin + i) % kNumbers)];
      StoreDouble(block.view(), i, centre + spread * noise);
    }
    return Repeated(std::string(reinterpret_cast<const char*>(block.data()),
                                static_cast<size_t>(block.view().bytes())),
                    0, bytes);
  }

  static std::string Repeated(const std::string& block, int64_t begin, int64_t bytes) {
    std::string all(static_cast<size_t>(bytes), '\0');
    size_t from = static_cast<size_t>(begin) % block.size();
    for (size_t at = 0; at < all.size();) {
      const size_t some = std::min(block.size() - from, all.size() - at);
      std::memcpy(all.data() + at, block.data() + from, some);
      at += some;
      from = 0;
    }
    return all;
  }

  std::vector<float> numbers_;
  absl::flat_hash_map<std::string, std::shared_ptr<const SpanSource>> sources_;  // by key
};

DrawnWeights::DrawnWeights(uint64_t seed) : store_(std::make_shared<Store>(seed)) {}

namespace {

// The weights of one pair of models that are drawn.
class DrawnPair {
 public:
  DrawnPair(const Model& before, const Model& after) {
    for (const TensorProto& tensor : before.proto->graph().initializer()) {
      const std::string key = KeyOf(tensor);
      if (key.empty()) continue;
      weights_[tensor.name()] = &tensor;
      keys_.insert(key);
      if (IsElsewhere(tensor)) drawn_.insert(key);
    }
    for (const TensorProto& tensor : after.proto->graph().initializer()) {
      const std::string own = KeyOf(tensor);
      if (own.empty()) continue;
      const auto theirs = weights_.find(tensor.name());
      const std::string other = theirs == weights_.end() ? "" : KeyOf(*theirs->second);
      std::string& key = in_after_[tensor.name()];
      if (keys_.contains(own)) {
        key = own;
      } else if (!other.empty() && !IsElsewhere(tensor) && !IsElsewhere(*theirs->second) &&
                 SameData(*theirs->second, tensor)) {
        key = other;
      } else {
        if (IsElsewhere(tensor)) key = own;
        continue;
      }
      drawn_.insert(key);
    }
  }

  // Returns what the numbers of a weight depend on; empty if the weight keeps its numbers.
  std::string OfSource(const TensorProto& tensor) const {
    std::string key = KeyOf(tensor);
    return drawn_.contains(key) ? key : std::string();
  }
  std::string OfConverted(const TensorProto& tensor) const {
    const auto found = in_after_.find(tensor.name());
    return found == in_after_.end() ? std::string() : found->second;
  }

 private:
  // Returns the place of a weight in a file, with its type and size; empty if it is not in a file.
  static std::string KeyOf(const TensorProto& tensor) {
    const auto place = PlaceOf(tensor);
    const auto size = NumElements(tensor);
    if (!place || !size.ok()) return "";
    return fmt::format("{}\n{}\n{}", place->text, tensor.data_type(), *size);
  }

  absl::flat_hash_map<std::string, const TensorProto*> weights_;  // the source's, by name
  absl::flat_hash_set<std::string> keys_, drawn_;
  absl::flat_hash_map<std::string, std::string> in_after_;  // keys, by name
};

}  // namespace

absl::StatusOr<std::pair<Model, Model>> DrawnWeights::In(const Model& before,
                                                         const Model& after) const {
  const DrawnPair pair(before, after);
  const auto in = [&](const Model& model, bool is_source) -> absl::StatusOr<Model> {
    const auto readers = WeightReadersOf(model.proto->graph());
    const auto draw = [&](const TensorProto& tensor) -> absl::StatusOr<std::optional<TensorProto>> {
      const std::string key = is_source ? pair.OfSource(tensor) : pair.OfConverted(tensor);
      if (key.empty()) return std::nullopt;
      if (!IsDrawn(tensor.data_type())) {
        if (!IsElsewhere(tensor)) return std::nullopt;
        return absl::FailedPreconditionError(
            fmt::format("{} holds {} in a file that is not there: only weights can be drawn",
                        tensor.name(), ElementTypeName(tensor.data_type())));
      }
      const auto reader = readers.find(tensor.name());
      return store_->Draw(tensor, key, reader == readers.end() ? WeightReader() : reader->second);
    };
    Model drawn = model;
    KV_ASSIGN_OR_RETURN(drawn.proto, WithOtherWeights(model.proto, store_, draw));
    drawn.digest = nullptr;
    return drawn;
  };
  KV_ASSIGN_OR_RETURN(Model source, in(before, /*is_source=*/true));
  KV_ASSIGN_OR_RETURN(Model result, in(after, /*is_source=*/false));
  return std::pair(std::move(source), std::move(result));
}

absl::StatusOr<std::optional<uint64_t>> ReadWeights(absl::string_view words) {
  if (words.empty() || words == "stored") return std::nullopt;
  if (words == "random") return std::optional<uint64_t>(1);
  uint64_t seed = 0;
  if (absl::ConsumePrefix(&words, "random:") && absl::SimpleAtoi(words, &seed)) {
    return std::optional<uint64_t>(seed);
  }
  return absl::InvalidArgumentError("weights are stored, random or random:SEED");
}

Assumption DrawnWeightsOf(uint64_t seed) {
  return NotRun(AssumptionKind::kOther, "",
                fmt::format("weights in files are not read: numbers are drawn (seed {})", seed));
}

}  // namespace kvlift

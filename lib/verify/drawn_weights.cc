#include "verify/drawn_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "exec/tensor.h"
#include "fmt/format.h"
#include "ir/graph.h"
#include "ir/spans.h"
#include "ir/tensor_data.h"
#include "ir/types.h"
#include "verify/ledger.h"
#include "verify/other_weights.h"
#include "verify/stimulus.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

// The number of numbers that are drawn. Each weight repeats them from an offset of its own.
constexpr int64_t kNumbers = (1 << 20) + 7;

// What the node that reads an initialiser uses it for.
enum class Role { kProduct, kTable, kNorm, kBias, kScale };

struct Reader {
  Role role = Role::kProduct;
  int64_t summed = 0;   // the length of the product's sum; 0: it is an extent of the initialiser
  bool turned = false;  // the sum runs along the last axis, not along the last but one
};

absl::flat_hash_map<std::string, Reader> ReadersOf(const onnx::GraphProto& graph) {
  absl::flat_hash_map<std::string, Reader> readers;
  for (const onnx::NodeProto& node : graph.node()) {
    const std::string& op = node.op_type();
    for (int k = 0; k < node.input_size(); ++k) {
      Reader reader;
      if (op == "Gather" && k == 0) {
        reader.role = Role::kTable;
      } else if (op == "MatMulNBits") {
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

// Returns the file and offset of a weight's data; empty if the model itself holds the data.
std::string PlaceOf(const TensorProto& tensor) {
  if (tensor.data_location() != TensorProto::EXTERNAL) return "";
  const SpanRange span = SpanOf(tensor);
  if (span.source != nullptr && span.source->content().kind != SpanSource::Kind::kDataFile) {
    return "";
  }
  std::string place;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location" || entry.key() == "offset") place += entry.value() + '\n';
  }
  return place;
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

  absl::StatusOr<TensorProto> Draw(const TensorProto& tensor, const std::string& place,
                                   const Reader& reader) {
    KV_ASSIGN_OR_RETURN(const int64_t size, NumElements(tensor));
    std::shared_ptr<const SpanSource>& source = sources_[place];
    if (source == nullptr) {
      KV_ASSIGN_OR_RETURN(std::string bytes, BytesOf(tensor, size, reader));
      source = SourceOf(std::move(bytes));
    }
    return SpanTensor(tensor, tensor.data_type(), *source);
  }

 private:
  absl::StatusOr<std::string> BytesOf(const TensorProto& tensor, int64_t size,
                                      const Reader& reader) {
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
  absl::flat_hash_map<std::string, std::shared_ptr<const SpanSource>> sources_;  // by place
};

DrawnWeights::DrawnWeights(uint64_t seed) : store_(std::make_shared<Store>(seed)) {}

absl::StatusOr<Model> DrawnWeights::In(const Model& model) const {
  const auto readers = ReadersOf(model.proto->graph());
  const auto draw = [&](const TensorProto& tensor) -> absl::StatusOr<std::optional<TensorProto>> {
    const std::string place = PlaceOf(tensor);
    if (place.empty()) return std::nullopt;
    if (!IsDrawn(tensor.data_type())) {
      if (!IsElsewhere(tensor)) return std::nullopt;
      return absl::FailedPreconditionError(
          fmt::format("{} holds {} in a file that is not there: only weights can be drawn",
                      tensor.name(), ElementTypeName(tensor.data_type())));
    }
    const auto reader = readers.find(tensor.name());
    return store_->Draw(tensor, place, reader == readers.end() ? Reader() : reader->second);
  };
  KV_ASSIGN_OR_RETURN(const std::shared_ptr<onnx::ModelProto> proto,
                      WithOtherWeights(model.proto, store_, draw));
  Model drawn = model;
  drawn.proto = proto;
  drawn.digest = nullptr;
  return drawn;
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

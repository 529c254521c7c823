#include "kvlift/inputs/value_files.h"

#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/types.h"
#include "kvlift/inputs/npy.h"
#include "onnx/onnx-data.pb.h"

namespace kvlift::cli {
namespace {

namespace fs = std::filesystem;
using exec::Tensor;
using onnx::OptionalProto;
using onnx::SequenceProto;
using onnx::TensorProto;
using onnx::TypeProto;

// Returns true if a file of this size may hold the elements of a tensor. An element takes a byte or
// more in a file and eight or fewer in memory. The shape may be anything where the file is of
// another message.
bool MayHold(const TensorProto& proto, size_t file_bytes) {
  if (proto.data_location() == TensorProto::EXTERNAL) return true;
  if (ElementBits(proto.data_type()) == 0) return true;
  const exec::Shape shape(proto.dims().begin(), proto.dims().end());
  const int64_t bytes = exec::NumBytes(proto.data_type(), shape);
  return bytes >= 0 && static_cast<uint64_t>(bytes) / 8 <= file_bytes;
}

// Reads the value of one file.
class ValueReader {
 public:
  explicit ValueReader(const fs::path& path) : path_(path) {}

  absl::StatusOr<Tensor> Read(const TypeProto& declared) {
    std::ifstream file(path_, std::ios::binary);
    std::ostringstream content;
    if (file) content << file.rdbuf();
    if (!file || content.bad()) return Error("cannot be read");
    const std::string bytes = std::move(content).str();
    file_bytes_ = bytes.size();
    const bool optional = declared.has_optional_type();
    const TypeProto& type = optional ? declared.optional_type().elem_type() : declared;
    if (path_.extension() == ".npy") {
      KV_RETURN_IF_ERROR(CheckHolds(/*sequence=*/false, type));
      return WithPath(ParseNpy(bytes));
    }
    if (optional) {
      KV_ASSIGN_OR_RETURN(const auto proto, Parse<OptionalProto>(bytes, "OptionalProto"));
      return OfOptional(proto, type);
    }
    if (declared.has_sequence_type()) {
      KV_ASSIGN_OR_RETURN(const auto proto, Parse<SequenceProto>(bytes, "SequenceProto"));
      return OfSequence(proto, declared.sequence_type().elem_type());
    }
    TensorProto proto;
    if (!proto.ParseFromString(bytes)) return Error("is no TensorProto");
    // A SequenceProto's tensors have the field number of a TensorProto's `segment`, which no writer
    // uses.
    if (proto.has_segment()) {
      return Error("is no TensorProto but a sequence, and the model declares a tensor");
    }
    if (!MayHold(proto, file_bytes_)) {
      return Error("is no TensorProto: its shape takes more data than the file has");
    }
    return OfTensor(proto);
  }

 private:
  absl::Status Error(std::string_view what) const {
    return absl::InvalidArgumentError(fmt::format("{} {}", path_.string(), what));
  }

  absl::StatusOr<Tensor> WithPath(absl::StatusOr<Tensor> value) const {
    if (value.ok()) return value;
    return absl::InvalidArgumentError(
        fmt::format("{}: {}", path_.string(), std::string(value.status().message())));
  }

  // Fields that the message does not have are those of another one.
  template <typename Proto>
  absl::StatusOr<Proto> Parse(const std::string& bytes, std::string_view message) const {
    Proto proto;
    if (!proto.ParseFromString(bytes) || !proto.GetReflection()->GetUnknownFields(proto).empty()) {
      return Error(fmt::format("is no {}", message));
    }
    return proto;
  }

  // Returns OK if a value of the declared type may be a sequence, or a tensor.
  absl::Status CheckHolds(bool sequence, const TypeProto& declared) const {
    if (sequence == declared.has_sequence_type()) return absl::OkStatus();
    return Error(sequence ? "holds a sequence, a tensor declared"
                          : "holds a tensor, a sequence declared");
  }

  absl::StatusOr<Tensor> OfTensor(const TensorProto& proto) const {
    return WithPath(Tensor::FromProto(proto, path_.parent_path().string()));
  }

  absl::StatusOr<Tensor> OfSequence(const SequenceProto& proto, const TypeProto& items) const {
    if (proto.sparse_tensor_values_size() > 0 || proto.map_values_size() > 0 ||
        proto.optional_values_size() > 0) {
      return Error("holds values that are neither tensors nor sequences");
    }
    const bool nested = items.has_sequence_type();
    if (nested ? proto.tensor_values_size() > 0 : proto.sequence_values_size() > 0) {
      return Error(fmt::format("holds a sequence of {}, one of {} declared",
                               nested ? "tensors" : "sequences", nested ? "sequences" : "tensors"));
    }
    std::vector<Tensor> values;
    for (const SequenceProto& item : proto.sequence_values()) {
      KV_ASSIGN_OR_RETURN(Tensor value, OfSequence(item, items.sequence_type().elem_type()));
      values.push_back(std::move(value));
    }
    const int32_t wanted = items.tensor_type().elem_type();
    for (const TensorProto& item : proto.tensor_values()) {
      if (!MayHold(item, file_bytes_)) {
        return Error("holds a tensor whose shape takes more data than the file has");
      }
      if (wanted != 0 && item.data_type() != wanted) {
        return Error(fmt::format("holds tensors of {}, {} declared",
                                 ElementTypeName(item.data_type()), ElementTypeName(wanted)));
      }
      KV_ASSIGN_OR_RETURN(Tensor value, OfTensor(item));
      values.push_back(std::move(value));
    }
    return Tensor::Sequence(std::move(values));
  }

  absl::StatusOr<Tensor> OfOptional(const OptionalProto& proto, const TypeProto& element) const {
    if (proto.has_sparse_tensor_value() || proto.has_map_value() || proto.has_optional_value()) {
      return Error("holds a value that is neither a tensor nor a sequence");
    }
    if (proto.has_sequence_value()) {
      KV_RETURN_IF_ERROR(CheckHolds(/*sequence=*/true, element));
      return OfSequence(proto.sequence_value(), element.sequence_type().elem_type());
    }
    if (!proto.has_tensor_value()) return Tensor::Nothing();
    KV_RETURN_IF_ERROR(CheckHolds(/*sequence=*/false, element));
    if (!MayHold(proto.tensor_value(), file_bytes_)) {
      return Error("holds a tensor whose shape takes more data than the file has");
    }
    return OfTensor(proto.tensor_value());
  }

  const fs::path& path_;
  size_t file_bytes_ = 0;
};

SequenceProto SequenceOf(const Tensor& value, const TypeProto& declared) {
  const TypeProto& items = declared.sequence_type().elem_type();
  SequenceProto proto;
  bool nested = items.has_sequence_type();
  for (const Tensor& item : *value.view().as<std::vector<Tensor>>()) {
    nested = nested || item.type() == exec::kSequence;
    if (item.type() == exec::kSequence) {
      *proto.add_sequence_values() = SequenceOf(item, items);
    } else {
      *proto.add_tensor_values() = item.ToProto("");
    }
  }
  proto.set_elem_type(nested ? SequenceProto::SEQUENCE : SequenceProto::TENSOR);
  return proto;
}

OptionalProto OptionalOf(const Tensor& value, const TypeProto& declared) {
  const TypeProto& element = declared.optional_type().elem_type();
  OptionalProto proto;
  if (value.type() == exec::kNothing) {
    proto.set_elem_type(OptionalProto::UNDEFINED);
  } else if (value.type() == exec::kSequence) {
    proto.set_elem_type(OptionalProto::SEQUENCE);
    *proto.mutable_sequence_value() = SequenceOf(value, element);
  } else {
    proto.set_elem_type(OptionalProto::TENSOR);
    *proto.mutable_tensor_value() = value.ToProto("");
  }
  return proto;
}

}  // namespace

const TypeProto& DeclaredType(const onnx::GraphProto& graph, const std::string& name) {
  for (const auto* values : {&graph.input(), &graph.output()}) {
    for (const onnx::ValueInfoProto& value : *values) {
      if (value.name() == name) return value.type();
    }
  }
  return TypeProto::default_instance();
}

absl::StatusOr<Tensor> ReadValue(const fs::path& path, const TypeProto& declared) {
  return ValueReader(path).Read(declared);
}

std::string SerializeValue(const Tensor& value, const std::string& name,
                           const TypeProto& declared) {
  if (declared.has_optional_type() || value.type() == exec::kNothing) {
    OptionalProto proto = OptionalOf(value, declared);
    proto.set_name(name);
    return proto.SerializeAsString();
  }
  if (value.type() == exec::kSequence) {
    SequenceProto proto = SequenceOf(value, declared);
    proto.set_name(name);
    return proto.SerializeAsString();
  }
  return value.ToProto(name).SerializeAsString();
}

}  // namespace kvlift::cli

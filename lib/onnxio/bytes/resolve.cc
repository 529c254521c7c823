#include "onnxio/bytes/resolve.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/checked.h"
#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/tensor_data.h"
#include "onnxio/bytes/image.h"
#include "onnxio/bytes/tensors.h"
#include "onnxio/files/map_file.h"

namespace kvlift {
namespace {

using onnx::TensorProto;

// Small tensors are copied into the model up to this many bytes in all.
constexpr int64_t kMaxCopied = int64_t{64} << 20;

absl::Status Wrong(const std::string& what) {
  return Coded("KV006", absl::InvalidArgumentError(what));
}

class Resolver {
 public:
  Resolver(const std::vector<std::string>& folders, const DataPolicy& policy, const Limits& limits)
      : folders_(folders), policy_(policy), limits_(limits) {}

  absl::Status Resolve(TensorProto& tensor) {
    KV_ASSIGN_OR_RETURN(const DataReference reference, ParseReference(tensor));
    KV_RETURN_IF_ERROR(CheckLocation(reference.location));
    const auto count = NumElements(tensor);
    if (!count.ok()) return Wrong(std::string(count.status().message()));
    const auto expected = ByteSize(tensor.data_type(), *count);
    if (!expected.ok()) return Wrong(std::string(expected.status().message()));
    if (reference.length.value_or(*expected) != *expected) {
      return Wrong(fmt::format("its external data has {} bytes, where its type and shape need {}",
                               *reference.length, *expected));
    }
    const auto sum = CheckedAdd(resolved_.bytes, *expected);
    if (!sum) return Wrong("with it, all external data together has more than 2^63 bytes");
    resolved_.bytes = *sum;
    KV_ASSIGN_OR_RETURN(const auto source, SourceOf(reference.location));
    if (source == nullptr) return absl::OkStatus();
    const auto size = static_cast<int64_t>(source->content().bytes.size());
    if (*expected > size || reference.offset > size - *expected) {
      return Coded("KV006",
                   absl::OutOfRangeError(fmt::format(
                       "its external data is {} bytes from byte {} of \"{}\" on, which has {}",
                       *expected, reference.offset, EscapeTerminal(reference.location), size)));
    }
    Bind(*source, reference, *expected, tensor);
    return absl::OkStatus();
  }

  Resolved Take() { return std::move(resolved_); }

 private:
  // Returns null if the file does not exist.
  absl::StatusOr<std::shared_ptr<const SpanSource>> SourceOf(const std::string& location) {
    if (const auto it = sources_.find(location); it != sources_.end()) return it->second;
    if (static_cast<int64_t>(sources_.size()) >= limits_.data_files) {
      return OverLimit(&Limits::data_files, limits_);
    }
    auto& source = sources_[location];
    auto file = OpenDataFile(folders_, location, policy_);
    if (absl::IsNotFound(file.status())) return source;
    if (!file.ok()) return file.status();
    SpanSource::Content content;
    content.kind = SpanSource::Kind::kDataFile;
    content.location = location;
    content.folder = file->folder;
    content.device = file->info.st_dev;
    content.inode = file->info.st_ino;
    KV_ASSIGN_OR_RETURN(MappedFile mapped,
                        MapFile(std::move(file->fd), file->info.st_size, /*keep_open=*/false));
    content.bytes = mapped.bytes;
    content.owner = std::move(mapped.owner);
    source = SpanSource::Register(std::move(content));
    resolved_.sources.push_back(source);
    return source;
  }

  void Bind(const SpanSource& source, const DataReference& reference, int64_t size,
            TensorProto& tensor) {
    const bool integers =
        tensor.data_type() == TensorProto::INT64 || tensor.data_type() == TensorProto::INT32;
    const auto small = static_cast<int64_t>(integers ? kIntegerSpanBytes : kSpanBytes);
    if (size < small && copied_ + size <= kMaxCopied) {
      copied_ += size;
      tensor.set_raw_data(std::string(source.content().bytes.substr(
          static_cast<size_t>(reference.offset), static_cast<size_t>(size))));
      tensor.clear_external_data();
      tensor.clear_data_location();
      return;
    }
    for (auto& entry : *tensor.mutable_external_data()) {
      if (entry.key() == "location") entry.set_value(source.name());
    }
    if (!reference.length) {
      auto* entry = tensor.add_external_data();
      entry->set_key("length");
      entry->set_value(fmt::format("{}", size));
    }
  }

  const std::vector<std::string>& folders_;
  const DataPolicy& policy_;
  const Limits& limits_;
  absl::flat_hash_map<std::string, std::shared_ptr<const SpanSource>> sources_;
  int64_t copied_ = 0;
  Resolved resolved_;
};

}  // namespace

absl::StatusOr<Resolved> ResolveExternalData(const std::vector<std::string>& folders,
                                             const DataPolicy& policy, const Limits& limits,
                                             onnx::ModelProto* model) {
  Resolver resolver(folders, policy, limits);
  absl::Status status;
  ForEachMutableTensor(*model, [&](TensorProto& tensor) {
    if (!status.ok() || !IsElsewhere(tensor)) return;
    status = resolver.Resolve(tensor);
    if (!status.ok()) {
      status = Prefixed(fmt::format("tensor \"{}\"", EscapeTerminal(tensor.name())), status);
    }
  });
  if (!status.ok()) return status;
  return resolver.Take();
}

}  // namespace kvlift

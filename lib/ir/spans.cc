#include "ir/spans.h"

#include <mutex>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

struct Registry {
  std::mutex mutex;
  uint64_t last = 0;
  absl::flat_hash_map<std::string, std::weak_ptr<const SpanSource>> sources;
};

Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

std::shared_ptr<const SpanSource> Find(const std::string& name) {
  std::shared_ptr<const SpanSource> source;  // outlives the lock, which its destructor takes
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto it = registry.sources.find(name);
  if (it != registry.sources.end()) source = it->second.lock();
  return source;
}

std::optional<uint64_t> Number(const std::string& text) {
  uint64_t value = 0;
  return absl::SimpleAtoi(text, &value) ? std::optional(value) : std::nullopt;
}

}  // namespace

SpanSource::SpanSource(Content content, std::string name)
    : content_(std::move(content)), name_(std::move(name)) {}

SpanSource::~SpanSource() {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  registry.sources.erase(name_);
}

std::shared_ptr<const SpanSource> SpanSource::Register(Content content) {
  Registry& registry = TheRegistry();
  uint64_t number = 0;
  {
    const std::lock_guard lock(registry.mutex);
    number = ++registry.last;
  }
  // The object is made without the lock, because its destructor, which runs if memory is short
  // below, takes the lock.
  std::string name = fmt::format("{}{}", kSpanPrefix, number);
  const std::shared_ptr<const SpanSource> source(new SpanSource(std::move(content), name));
  const std::lock_guard lock(registry.mutex);
  registry.sources.emplace(std::move(name), source);
  return source;
}

SpanRange SpanOf(const onnx::TensorProto& tensor) {
  SpanRange range;
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return range;
  const std::string* name = nullptr;
  std::optional<uint64_t> offset = 0, length;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") {
      name = &entry.value();
    } else if (entry.key() == "offset") {
      offset = Number(entry.value());
    } else if (entry.key() == "length") {
      length = Number(entry.value());
      if (!length) return range;
    }
  }
  if (name == nullptr || name->compare(0, kSpanPrefix.size(), kSpanPrefix) != 0) return range;
  const std::shared_ptr<const SpanSource> source = Find(*name);
  if (source == nullptr || !offset) return range;
  const uint64_t size = source->content().bytes.size();
  if (*offset > size || length.value_or(0) > size - *offset) return range;
  range.source = source;
  range.offset = *offset;
  range.length = length.value_or(size - *offset);
  return range;
}

RawData RawDataOf(const onnx::TensorProto& tensor) {
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return {tensor.raw_data(), nullptr};
  SpanRange range = SpanOf(tensor);
  if (range.source == nullptr) return {};
  const std::string_view bytes = range.source->content().bytes.substr(range.offset, range.length);
  return {bytes, std::move(range.source)};
}

bool IsElsewhere(const onnx::TensorProto& tensor) {
  return tensor.data_location() == onnx::TensorProto::EXTERNAL && SpanOf(tensor).source == nullptr;
}

}  // namespace kvlift

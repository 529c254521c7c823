#include "kvlift/inputs/shared_weights.h"

#include <deque>
#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/spans.h"
#include "ir/tensor_data.h"
#include "kvlift/inputs/external.h"

namespace kvlift::cli {
namespace {

namespace fs = std::filesystem;
using onnx::TensorProto;

constexpr size_t kSmallest = 1024;
// Offsets are multiples of this, so that runtimes can map large weights; small ones lie closer.
constexpr uint64_t kPage = 4096, kLine = 64;

// The file while it grows.
class WeightFile {
 public:
  // Moves the elements of a tensor into the file, if they lie in the model and are many.
  absl::Status Take(TensorProto* tensor) {
    if (tensor->data_type() == TensorProto::STRING) return absl::OkStatus();
    const SpanRange span = SpanOf(*tensor);
    if (span.source != nullptr) {
      const SpanSource::Content& content = span.source->content();
      if (content.kind != SpanSource::Kind::kModel || span.length < kSmallest) {
        return absl::OkStatus();
      }
      const std::string_view bytes = content.bytes.substr(span.offset, span.length);
      kept_->sources.push_back(span.source);
      Refer(tensor, Add(bytes, content.fd, span.offset));
      return absl::OkStatus();
    }
    if (IsElsewhere(*tensor) || tensor->ByteSizeLong() < kSmallest) return absl::OkStatus();
    KV_ASSIGN_OR_RETURN(std::string bytes, InlineBytes(*tensor));
    if (bytes.size() < kSmallest) return absl::OkStatus();
    kept_->texts.push_back(std::move(bytes));
    Refer(tensor, Add(kept_->texts.back(), -1, 0));
    return absl::OkStatus();
  }

  // Gives the file its name, and the name to all that refer to it.
  SharedWeights Finish(const std::string& output) {
    if (pieces_.empty()) return {};
    const fs::path path(output);
    const std::string name =
        fmt::format("{}.{}.data", path.stem().string(), Sha256Of(pieces_).substr(0, 16));
    for (auto* location : locations_) location->set_value(name);
    SharedWeights shared;
    shared.file = OutputFile{(path.parent_path() / name).string(), {}, std::move(pieces_)};
    shared.owner = kept_;
    return shared;
  }

 private:
  struct Kept {
    std::deque<std::string> texts;
    std::vector<std::shared_ptr<const SpanSource>> sources;
    const std::string zeros = std::string(kPage, '\0');
  };
  struct Place {
    uint64_t offset = 0, length = 0;
  };

  Place Add(std::string_view bytes, int fd, uint64_t offset) {
    const auto [it, added] =
        places_.try_emplace(absl::string_view(bytes.data(), bytes.size()), Place());
    if (!added) return it->second;
    const uint64_t unit = bytes.size() >= kPage ? kPage : kLine;
    if (const uint64_t gap = (unit - size_ % unit) % unit; gap > 0) {
      pieces_.push_back({std::string_view(kept_->zeros).substr(0, gap), -1, 0});
      size_ += gap;
    }
    it->second = {size_, bytes.size()};
    pieces_.push_back({bytes, fd, offset});
    size_ += bytes.size();
    return it->second;
  }

  void Refer(TensorProto* tensor, const Place& place) {
    TensorProto moved;
    moved.set_name(tensor->name());
    moved.set_data_type(tensor->data_type());
    *moved.mutable_dims() = tensor->dims();
    moved.set_doc_string(tensor->doc_string());
    if (!tensor->has_doc_string()) moved.clear_doc_string();
    moved.set_data_location(TensorProto::EXTERNAL);
    *tensor = std::move(moved);
    const auto add = [&](const char* key, std::string value) {
      auto* entry = tensor->add_external_data();
      entry->set_key(key);
      entry->set_value(std::move(value));
      return entry;
    };
    locations_.push_back(add("location", ""));
    add("offset", fmt::format("{}", place.offset));
    add("length", fmt::format("{}", place.length));
  }

  std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();
  absl::flat_hash_map<absl::string_view, Place> places_;  // by content
  std::vector<Piece> pieces_;
  uint64_t size_ = 0;
  std::vector<onnx::StringStringEntryProto*> locations_;
};

}  // namespace

absl::StatusOr<SharedWeights> ShareWeights(const std::string& output,
                                           std::vector<onnx::ModelProto>* models) {
  WeightFile file;
  for (onnx::ModelProto& model : *models) {
    for (TensorProto& tensor : *model.mutable_graph()->mutable_initializer()) {
      KV_RETURN_IF_ERROR(file.Take(&tensor));
    }
  }
  return file.Finish(output);
}

}  // namespace kvlift::cli

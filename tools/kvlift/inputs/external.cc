#include "kvlift/inputs/external.h"

#include <filesystem>
#include <string_view>
#include <utility>

#include "absl/container/btree_map.h"
#include "base/coded.h"
#include "base/escape.h"
#include "base/sha256.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/spans.h"
#include "kvlift/outputs.h"
#include "onnxio/bytes/tensors.h"
#include "onnxio/files/data_file.h"
#include "onnxio/files/map_file.h"

namespace kvlift::cli {
namespace {

namespace fs = std::filesystem;
using Sources = absl::btree_map<std::string, std::shared_ptr<const SpanSource>>;

absl::Status OutsideOutput(const std::string& location) {
  return Coded("KV503", absl::FailedPreconditionError(fmt::format(
                            "external data \"{}\" would lie outside the output's folder; write the "
                            "result beside it, or copy it with --external copy",
                            EscapeTerminal(location))));
}

absl::Status DoesNotExist(const std::string& location, std::string_view so) {
  return Coded("KV503",
               absl::FailedPreconditionError(fmt::format(
                   "external data \"{}\" does not exist, so {}", EscapeTerminal(location), so)));
}

// Returns the location of the first tensor whose file does not exist; empty if there is none.
std::string FirstMissing(const onnx::ModelProto& model) {
  std::string missing;
  ForEachTensor(model, [&](const onnx::TensorProto& tensor) {
    if (!missing.empty() || !IsElsewhere(tensor)) return;
    for (const auto& entry : tensor.external_data()) {
      if (entry.key() == "location") missing = entry.value();
    }
  });
  return missing;
}

// The sources of external data, by name. One file under two names is two sources.
Sources DataSources(const onnx::ModelProto& model) {
  Sources sources;
  ForEachTensor(model, [&](const onnx::TensorProto& tensor) {
    SpanRange span = SpanOf(tensor);
    if (span.source == nullptr) return;
    const SpanSource& source = *span.source;
    if (source.content().kind != SpanSource::Kind::kDataFile) return;
    sources.try_emplace(source.content().location, std::move(span.source));
  });
  return sources;
}

// Returns the path relative to `to`, if the file is in or below that folder; else an empty string.
std::string Below(const fs::path& to, const std::string& folder, const std::string& location) {
  const fs::path data = (CanonicalFolder(folder) / location).lexically_relative(to);
  if (data.empty() || *data.begin() == "..") return {};
  return data.string();
}

absl::Status MoveReferences(const std::string& base_dir, const fs::path& to,
                            onnx::ModelProto* model) {
  absl::Status status;
  ForEachMutableTensor(*model, [&](onnx::TensorProto& tensor) {
    if (!IsElsewhere(tensor)) return;
    for (auto& entry : *tensor.mutable_external_data()) {
      if (entry.key() != "location") continue;
      std::string location = Below(to, base_dir, entry.value());
      if (location.empty()) {
        status = DoesNotExist(entry.value(),
                              "the result has to be written beside or above the source, which it "
                              "would refer to");
      } else {
        entry.set_value(std::move(location));
      }
    }
  });
  return status;
}

absl::Status AddCopy(const SpanSource& source, const std::string& output, DataPlacement* placed) {
  const SpanSource::Content& content = source.content();
  // The name is made from the content, so a model never finds the data of another run under it.
  const std::string name = fmt::format("{}.{}.data", fs::path(output).stem().string(),
                                       Sha256OfMap(content.bytes).substr(0, 16));
  placed->locations[source.name()] = name;
  DataPolicy any;
  any.hard_links = true;
  auto file = OpenDataFile({content.folder}, content.location, any);
  const bool same =
      file.ok() && file->info.st_dev == content.device && file->info.st_ino == content.inode;
  OutputFile copy;
  copy.path = (fs::path(output).parent_path() / name).string();
  copy.pieces.push_back({content.bytes, same ? file->fd.get() : -1, 0});
  if (same) placed->open.push_back(std::move(file->fd));
  for (const OutputFile& other : placed->files) {
    if (other.path == copy.path) return absl::OkStatus();
  }
  placed->files.push_back(std::move(copy));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ExternalMode> ReadExternalMode(const std::string& word) {
  if (word == "auto") return ExternalMode::kAuto;
  if (word == "keep") return ExternalMode::kKeep;
  if (word == "copy") return ExternalMode::kCopy;
  return absl::InvalidArgumentError(fmt::format("--external: unknown word '{}'", word));
}

absl::StatusOr<DataPlacement> PlaceExternalData(const std::string& base_dir,
                                                const std::string& output, ExternalMode mode,
                                                onnx::ModelProto* model) {
  DataPlacement placed;
  const fs::path to = CanonicalFolder(fs::path(output).parent_path().string());
  if (mode == ExternalMode::kCopy) {
    const std::string missing = FirstMissing(*model);
    if (!missing.empty()) return DoesNotExist(missing, "it cannot be copied");
  }
  if (CanonicalFolder(base_dir) != to) KV_RETURN_IF_ERROR(MoveReferences(base_dir, to, model));
  for (const auto& [location, source] : DataSources(*model)) {
    std::string near = Below(to, source->content().folder, location);
    if (mode != ExternalMode::kCopy && !near.empty()) {
      placed.locations[source->name()] =
          CanonicalFolder(source->content().folder) == to ? location : std::move(near);
    } else if (mode == ExternalMode::kKeep) {
      return OutsideOutput(location);
    } else {
      KV_RETURN_IF_ERROR(AddCopy(*source, output, &placed));
    }
  }
  return placed;
}

std::string Sha256Of(const std::vector<Piece>& pieces) {
  Sha256 hash;
  for (const Piece& piece : pieces) hash.Update(piece.bytes);
  return hash.FinishHex();
}

}  // namespace kvlift::cli

#include "kvlift/outputs.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/coded.h"
#include "base/escape.h"
#include "base/status.h"
#include "contract/manifest.h"
#include "fmt/format.h"
#include "ir/spans.h"
#include "onnxio/bytes/tensors.h"

namespace kvlift::cli {
namespace {

namespace fs = std::filesystem;

// Returns the path by which two names of one file that may not exist yet are equal.
fs::path CanonicalFile(const std::string& path) {
  std::error_code error;
  fs::path canonical = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? fs::path(path) : canonical;
}

}  // namespace

fs::path CanonicalFolder(const fs::path& folder) {
  std::error_code error;
  return fs::weakly_canonical(folder.empty() ? "." : folder, error);
}

std::string OutputNameError(const std::string& path) {
  if (path.empty()) return "is empty, and needs the name of a file";
  return path == "-" ? "outputs are written to files; ./- is a file of that name" : "";
}

std::string FolderNameError(const std::string& path) {
  return path.empty() ? "is empty, and needs the name of a folder" : "";
}

void OutputGuard::Reads(const std::string& path) {
  struct stat info {};
  if (path.empty() || path == "-" || stat(path.c_str(), &info) != 0) return;
  inputs_.push_back({info.st_dev, info.st_ino});
}

void OutputGuard::ReadsModel(const Model& model) {
  Reads(model.path);
  ForEachTensor(*model.proto, [&](const onnx::TensorProto& tensor) {
    const SpanRange span = SpanOf(tensor);
    if (span.source == nullptr || span.source->content().inode == 0) return;
    const Identity data{span.source->content().device, span.source->content().inode};
    if (std::find(inputs_.begin(), inputs_.end(), data) == inputs_.end()) inputs_.push_back(data);
  });
}

void OutputGuard::ReadsManifestBeside(const std::string& model_path) {
  Reads(ManifestPathFor(model_path));
}

std::string OutputGuard::WhyNot(const std::string& path) const {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0) {
    const Identity output{info.st_dev, info.st_ino};
    if (std::find(inputs_.begin(), inputs_.end(), output) != inputs_.end()) return "is an input";
    if (S_ISDIR(info.st_mode)) return "is a folder";
    if (!S_ISREG(info.st_mode)) return "is no regular file";
  }
  // A link that leads nowhere is something that exists.
  if (!force_ && lstat(path.c_str(), &info) == 0) return "exists; --force overwrites it";
  return {};
}

absl::Status OutputGuard::Check(absl::Span<const std::string> paths) const {
  std::vector<fs::path> known;
  for (const std::string& path : paths) {
    std::string why = WhyNot(path);
    fs::path canonical = CanonicalFile(path);
    if (why.empty() && std::find(known.begin(), known.end(), canonical) != known.end()) {
      why = "is asked for twice";
    }
    if (!why.empty()) {
      return Coded("KV501", absl::FailedPreconditionError(
                                fmt::format("{} {}; nothing written", EscapeTerminal(path), why)));
    }
    known.push_back(std::move(canonical));
  }
  return absl::OkStatus();
}

absl::Status OutputGuard::Check(const std::vector<OutputFile>& files) const {
  std::vector<std::string> paths;
  paths.reserve(files.size());
  for (const OutputFile& file : files) paths.push_back(file.path);
  return Check(paths);
}

}  // namespace kvlift::cli

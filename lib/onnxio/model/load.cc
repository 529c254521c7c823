// Reads model files.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "base/coded.h"
#include "base/escape.h"
#include "base/sha256.h"
#include "base/status.h"
#include "fmt/format.h"
#include "ir/spans.h"
#include "onnxio/bytes/contents.h"
#include "onnxio/bytes/image.h"
#include "onnxio/bytes/imports.h"
#include "onnxio/bytes/resolve.h"
#include "onnxio/files/data_file.h"
#include "onnxio/files/errno_status.h"
#include "onnxio/files/fd.h"
#include "onnxio/files/file_type.h"
#include "onnxio/files/map_file.h"
#include "onnxio/model/functional_form.h"
#include "onnxio/model/functions.h"
#include "onnxio/model/model.h"
#include "onnxio/model/plain_sequences.h"

namespace kvlift {
namespace {

// Reads to the end in pieces, since the size of a pipe is unknown.
absl::StatusOr<std::string> ReadAll(int fd, const Limits& limits) {
  constexpr size_t kPiece = size_t{1} << 20;
  std::string bytes;
  for (;;) {
    const size_t old_size = bytes.size();
    bytes.resize(old_size + kPiece);
    const ssize_t n = read(fd, bytes.data() + old_size, kPiece);
    if (n < 0 && errno == EINTR) {
      bytes.resize(old_size);
      continue;
    }
    if (n < 0) return ErrnoStatus(errno, "cannot read");
    bytes.resize(old_size + static_cast<size_t>(n));
    if (static_cast<int64_t>(bytes.size()) > limits.file_bytes) {
      return OverLimit(&Limits::file_bytes, limits);
    }
    if (n == 0) return bytes;
  }
}

std::shared_ptr<const SpanSource> SourceOfBytes(std::string bytes) {
  auto owner = std::make_shared<const std::string>(std::move(bytes));
  SpanSource::Content content;
  content.bytes = *owner;
  content.owner = std::move(owner);
  return SpanSource::Register(std::move(content));
}

absl::StatusOr<std::shared_ptr<const SpanSource>> ReadModelFile(const std::string& path,
                                                                const Limits& limits) {
  if (path == "-") {
    KV_ASSIGN_OR_RETURN(std::string bytes, ReadAll(STDIN_FILENO, limits));
    return SourceOfBytes(std::move(bytes));
  }
  if (path.empty()) return absl::NotFoundError("no file name");
  // O_NONBLOCK keeps open from waiting for a writer if the file is a pipe.
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.ok()) return ErrnoStatus(errno, "cannot open");
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "cannot read");
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError("is a directory; name the .onnx file in it");
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError("is not a regular file; pipe a model in with \"-\"");
  }
  if (info.st_size > limits.file_bytes) return OverLimit(&Limits::file_bytes, limits);
  KV_ASSIGN_OR_RETURN(MappedFile mapped, MapFile(std::move(fd), info.st_size, /*keep_open=*/true));
  SpanSource::Content content;
  content.bytes = mapped.bytes;
  content.owner = std::move(mapped.owner);
  content.fd = mapped.fd;
  content.device = info.st_dev;
  content.inode = info.st_ino;
  return SpanSource::Register(std::move(content));
}

absl::StatusOr<ParsedModel> ParseText(const SpanSource& source, const Limits& limits) {
  KV_ASSIGN_OR_RETURN(onnx::ModelProto model, ParseModelText(std::string(source.content().bytes)));
  // The limits apply to the model in its binary form.
  const std::shared_ptr<const SpanSource> binary = SourceOfBytes(model.SerializeAsString());
  KV_RETURN_IF_ERROR(ParseModel(*binary, limits).status());
  ParsedModel parsed;
  parsed.proto = std::make_unique<onnx::ModelProto>(std::move(model));
  return parsed;
}

absl::StatusOr<ParsedModel> ParseBinary(const SpanSource& source, const Limits& limits) {
  const std::string_view bytes = source.content().bytes;
  if (const auto what = DescribeOtherFileType(absl::string_view(bytes.data(), bytes.size()))) {
    return Coded("KV003", absl::InvalidArgumentError(*what));
  }
  return ParseModel(source, limits);
}

absl::Status CheckShell(const onnx::ModelProto& model, const Limits& limits) {
  if (!model.has_graph()) {
    return Coded("KV002", absl::InvalidArgumentError(
                              "not an ONNX model: it parses as protobuf, but has no graph"));
  }
  KV_RETURN_IF_ERROR(CheckAttributes(model));
  return CheckCallDepth(model, limits);
}

absl::StatusOr<Model> LoadFrom(std::shared_ptr<const SpanSource> source, bool is_text,
                               const std::string& path, const LoadOptions& options) {
  KV_ASSIGN_OR_RETURN(ParsedModel parsed, is_text ? ParseText(*source, options.limits)
                                                  : ParseBinary(*source, options.limits));
  KV_RETURN_IF_ERROR(CheckShell(*parsed.proto, options.limits));
  KV_RETURN_IF_ERROR(UniteImports(parsed.proto.get()));
  const std::vector<std::string> folders =
      options.data_folders.empty() ? DataFoldersOf(path) : options.data_folders;
  KV_ASSIGN_OR_RETURN(Resolved resolved, ResolveExternalData(folders, options.data, options.limits,
                                                             parsed.proto.get()));
  NamePresents(parsed.proto.get());
  WithoutSequences(parsed.proto.get());
  Model model;
  model.path = path;
  model.base_dir = folders[0];
  model.external_bytes = resolved.bytes;
  model.unknown_fields = parsed.unknown_fields;
  model.digest = std::make_shared<SourceDigest>(source);
  // The files of spans stay mapped while the model is held.
  auto keep =
      std::make_shared<std::vector<std::shared_ptr<const SpanSource>>>(std::move(resolved.sources));
  keep->push_back(std::move(source));
  model.proto = std::shared_ptr<onnx::ModelProto>(
      parsed.proto.release(), [keep](const onnx::ModelProto* proto) { delete proto; });
  return model;
}

absl::StatusOr<Model> LoadUnnamed(const std::string& path, const LoadOptions& options) {
  KV_ASSIGN_OR_RETURN(auto source, ReadModelFile(path, options.limits));
  return LoadFrom(std::move(source), absl::EndsWith(path, ".onnxtxt"), path, options);
}

}  // namespace

const std::string& SourceDigest::Hex() {
  const SpanSource::Content& content = source_->content();
  std::call_once(once_, [&] {
    hex_ = content.fd >= 0 ? Sha256OfMap(content.bytes) : Sha256Hex(content.bytes);
  });
  return hex_;
}

std::string Model::Sha256() const { return digest == nullptr ? std::string() : digest->Hex(); }

absl::StatusOr<Model> LoadModel(const std::string& path, const LoadOptions& options) {
  auto model = LoadUnnamed(path, options);
  if (model.ok()) return model;
  return CodedIfNone(
      "KV001", Prefixed(path == "-" ? "standard input" : EscapeTerminal(path), model.status()));
}

absl::StatusOr<Model> LoadModelBytes(std::string bytes, const std::string& base_dir,
                                     const LoadOptions& options) {
  if (static_cast<int64_t>(bytes.size()) > options.limits.file_bytes) {
    return OverLimit(&Limits::file_bytes, options.limits);
  }
  LoadOptions in_folder = options;
  if (in_folder.data_folders.empty()) in_folder.data_folders = {base_dir};
  auto model = LoadFrom(SourceOfBytes(std::move(bytes)), /*is_text=*/false, "memory", in_folder);
  return model.ok() ? std::move(model) : CodedIfNone("KV001", model.status());
}

std::string Sha256Hex(std::string_view bytes) {
  Sha256 sha;
  sha.Update(bytes);
  return sha.FinishHex();
}

}  // namespace kvlift

// Reading model files.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "base/checked.h"
#include "base/escape.h"
#include "base/sha256.h"
#include "base/status.h"
#include "fmt/format.h"
#include "google/protobuf/io/coded_stream.h"
#include "ir/subgraphs.h"
#include "onnxio/errno_status.h"
#include "onnxio/fd.h"
#include "onnxio/guard.h"
#include "onnxio/limits.h"
#include "onnxio/model.h"
#include "onnxio/tensors.h"

namespace kvlift {
namespace {

absl::Status TooLarge() {
  return absl::OutOfRangeError(
      fmt::format("more than {} bytes, the limit of protobuf; large models keep their weights in "
                  "external data",
                  kMaxModelBytes));
}

// Reads to the end, in pieces, so that a pipe works and a file that grows does no harm.
absl::StatusOr<std::string> ReadAll(int fd, int64_t size_hint) {
  constexpr size_t kPiece = size_t{1} << 20;
  std::string bytes;
  bytes.reserve(static_cast<size_t>(std::min(size_hint, kMaxModelBytes)) + 1);
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
    if (static_cast<int64_t>(bytes.size()) > kMaxModelBytes) return TooLarge();
    if (n == 0) return bytes;
  }
}

absl::StatusOr<std::string> ReadModelFile(const std::string& path) {
  if (path == "-") return ReadAll(STDIN_FILENO, 0);
  if (path.empty()) return absl::NotFoundError("no file name");
  // O_NONBLOCK: opening a pipe that nobody writes to must not hang.
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.ok()) return ErrnoStatus(errno, "cannot open");
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "cannot read");
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError("is a directory; name the .onnx file in it");
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError("is not a regular file; pipe a model in with \"-\"");
  }
  if (info.st_size > kMaxModelBytes) return TooLarge();
  return ReadAll(fd.get(), info.st_size);
}

struct Magic {
  absl::string_view prefix;
  const char* what;
};

// Files that are often taken for a model. Nothing of these can begin a ModelProto.
constexpr Magic kMagics[] = {
    {"PK\x03\x04",
     "a zip archive (a PyTorch .pt or .bin file, or a zipped model): unpack or "
     "export it to ONNX"},
    {"GGUF", "a GGUF file of llama.cpp, not ONNX"},
    {"\x89HDF\r\n", "an HDF5 file (Keras), not ONNX"},
    {"version https://git-lfs.github.com/spec/",
     "a Git LFS pointer: the model itself was not "
     "downloaded (git lfs pull)"},
    {"\x1f\x8b", "gzip-compressed: decompress it first"},
    {"\x80\x02", "a Python pickle, not ONNX"},
    {"\x80\x04", "a Python pickle, not ONNX"},
    {"\x7f"
     "ELF",
     "a program or library, not ONNX"},
    {"ORTM", "an ONNX Runtime .ort file, not ONNX"},
    {"<", "XML or HTML, not ONNX"},
    {"{", "JSON, not ONNX"},
};

std::optional<std::string> WhatItLooksLike(absl::string_view bytes) {
  if (bytes.empty()) return "the file is empty";
  for (const Magic& magic : kMagics) {
    if (absl::StartsWith(bytes, magic.prefix)) return fmt::format("this is {}", magic.what);
  }
  if (bytes.size() > 8 && bytes.substr(4, 4) == "ORTM") {
    return "this is an ONNX Runtime .ort file, not ONNX";
  }
  if (bytes.size() > 8 && bytes.substr(4, 4) == "TFL3") return "this is a TFLite file, not ONNX";
  if (bytes.size() > 9 && bytes[8] == '{' &&
      bytes.substr(1, 7).find('\0') != absl::string_view::npos) {
    return "this is a safetensors file, not ONNX";
  }
  if (absl::StartsWith(bytes, "ir_version:")) {
    return "this is protobuf text, which is not read; ONNX text has the ending .onnxtxt";
  }
  return std::nullopt;
}

absl::StatusOr<onnx::ModelProto> ParseBinary(const std::string& bytes) {
  if (const auto what = WhatItLooksLike(bytes)) return absl::InvalidArgumentError(*what);
  onnx::ModelProto model;
  bool complete = false;
  KV_RETURN_IF_ERROR(Guard("not an ONNX model", [&] {
    google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                  static_cast<int>(bytes.size()));
    stream.SetTotalBytesLimit(std::numeric_limits<int>::max());
    stream.SetRecursionLimit(kMaxMessageDepth);
    complete = model.ParseFromCodedStream(&stream) && stream.ConsumedEntireMessage();
  }));
  if (!complete) {
    return absl::InvalidArgumentError(
        "not an ONNX model: the file is truncated, damaged, or of another type");
  }
  return model;
}

absl::Status CheckShell(const onnx::ModelProto& model) {
  if (!model.has_graph()) {
    return absl::InvalidArgumentError("not an ONNX model: it parses as protobuf, but has no graph");
  }
  if (SubgraphDepth(model) > kMaxSubgraphDepth) {
    return absl::OutOfRangeError(
        fmt::format("bodies of If, Loop or Scan nested more than {} deep", kMaxSubgraphDepth));
  }
  return absl::OkStatus();
}

// Of `length` entries; data without one is as long as its file and is not counted.
absl::StatusOr<int64_t> SumExternalBytes(const onnx::ModelProto& model) {
  int64_t sum = 0;
  absl::Status status;
  ForEachTensor(model, [&](const onnx::TensorProto& tensor) {
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return;
    for (const auto& entry : tensor.external_data()) {
      if (entry.key() != "length") continue;
      int64_t length = 0;
      const bool valid = absl::SimpleAtoi(entry.value(), &length) && length >= 0;
      const auto next = CheckedAdd(sum, length);
      if (!valid || !next) {
        status = absl::InvalidArgumentError(
            fmt::format("tensor \"{}\" has external data of length \"{}\"",
                        EscapeTerminal(tensor.name()), EscapeTerminal(entry.value())));
        return;
      }
      sum = *next;
    }
  });
  if (!status.ok()) return status;
  return sum;
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (path == "-" || slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::StatusOr<Model> LoadUnnamed(const std::string& path) {
  KV_ASSIGN_OR_RETURN(const std::string bytes, ReadModelFile(path));
  const bool is_text = absl::EndsWith(path, ".onnxtxt");
  KV_ASSIGN_OR_RETURN(onnx::ModelProto proto, is_text ? ParseModelText(bytes) : ParseBinary(bytes));
  KV_RETURN_IF_ERROR(CheckShell(proto));
  Model model;
  model.path = path;
  model.base_dir = DirectoryOf(path);
  model.sha256 = Sha256Hex(bytes);
  KV_ASSIGN_OR_RETURN(model.external_bytes, SumExternalBytes(proto));
  model.proto = std::make_shared<onnx::ModelProto>(std::move(proto));
  return model;
}

}  // namespace

absl::StatusOr<Model> LoadModel(const std::string& path) {
  auto model = LoadUnnamed(path);
  if (model.ok()) return model;
  return absl::Status(model.status().code(),
                      fmt::format("{}: {}", path == "-" ? "standard input" : EscapeTerminal(path),
                                  std::string(model.status().message())));
}

std::string Sha256Hex(std::string_view bytes) {
  Sha256 sha;
  sha.Update(bytes);
  return sha.FinishHex();
}

}  // namespace kvlift

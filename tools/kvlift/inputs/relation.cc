#include "kvlift/inputs/relation.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/coded.h"
#include "base/status.h"
#include "contract/manifest_text.h"
#include "fmt/format.h"
#include "kvlift/commands/cmd_verify_infer.h"
#include "onnxio/bytes/contents.h"
#include "onnxio/files/errno_status.h"
#include "onnxio/files/fd.h"

namespace kvlift::cli {
namespace {

// The most bytes of a manifest. Those of the largest models have a hundredth of this.
constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;

// NotFound if there is no such file. Does not wait for a pipe, and does not read an endless file.
absl::StatusOr<std::string> ReadManifestText(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.ok()) return ErrnoStatus(errno, "cannot be read");
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "cannot be read");
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError("is no regular file");
  if (info.st_size > kMaxManifestBytes) {
    return absl::OutOfRangeError(fmt::format("takes more than {} bytes", kMaxManifestBytes));
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = read(fd.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "cannot be read");
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  return text;
}

// Returns true if the manifest beside a model contradicts the one that the model carries: then it
// is from another run or was changed by hand. The results of proof and test are only in the file
// beside the model.
bool IsOfAnotherConversion(Manifest beside, const Model& model) {
  auto own = ManifestFromMetadata(*model.proto);
  if (!own.ok()) return false;
  own->proved.clear();
  beside.proved.clear();
  if (own->quantization) own->quantization->errors.clear();
  if (beside.quantization) beside.quantization->errors.clear();
  return ManifestText(*own) != ManifestText(beside);
}

}  // namespace

absl::StatusOr<std::optional<Manifest>> ReadManifest(Io& io, const std::string& given,
                                                     const Model& model) {
  const std::string path = given.empty() ? ManifestPathFor(model.path) : given;
  const auto text = ReadManifestText(path);
  if (!text.ok() && !(given.empty() && absl::IsNotFound(text.status()))) {
    return Coded("KV033", Prefixed(path, text.status()));
  }
  auto manifest = text.ok() ? ManifestFromJson(*text) : ManifestFromMetadata(*model.proto);
  if (manifest.ok()) {
    if (text.ok() && given.empty() && IsOfAnotherConversion(*manifest, model)) {
      Complain(io, path, "is of another conversion than the model: the model carries another one");
    }
    return *std::move(manifest);
  }
  if (!text.ok() && absl::IsNotFound(manifest.status())) return std::nullopt;
  return Coded("KV033", Prefixed(text.ok() ? path : model.path, manifest.status()));
}

std::optional<Manifest> ManifestOf(Io& io, const std::string& given, const Model& model,
                                   bool* broken) {
  auto manifest = ReadManifest(io, given, model);
  *broken = !manifest.ok();
  if (manifest.ok()) return *std::move(manifest);
  Complain(io, "", manifest.status());
  return std::nullopt;
}

namespace {

// Returns true if two models are one file, or files of equal bytes that name no others.
bool AreTheSame(const Model& before, const Model& after) {
  struct stat first {
  }, second{};
  if (stat(before.path.c_str(), &first) == 0 && stat(after.path.c_str(), &second) == 0 &&
      first.st_dev == second.st_dev && first.st_ino == second.st_ino) {
    return true;
  }
  return before.external_bytes == 0 && after.external_bytes == 0 &&
         before.Sha256() == after.Sha256();
}

}  // namespace

namespace {

// Reads a model that is going to be run.
absl::StatusOr<Model> ReadRunnable(const Io& io, const std::string& path,
                                   const CommonFlags& flags) {
  KV_ASSIGN_OR_RETURN(Model model, ReadModel(io, path, flags));
  const absl::Status contents = CheckContents(*model.proto);
  if (!contents.ok()) return Coded(CodeOf(contents), Prefixed(path, contents));
  return model;
}

}  // namespace

absl::StatusOr<ModelPair> ReadPair(Io& io, const std::string& before, const std::string& after,
                                   const std::string& manifest, const CommonFlags& flags) {
  KV_ASSIGN_OR_RETURN(Model first, ReadRunnable(io, before, flags));
  KV_ASSIGN_OR_RETURN(Model second, ReadRunnable(io, after, flags));
  const bool same = AreTheSame(first, second);
  std::optional<Manifest> relation;
  // The manifest of a conversion relates it to its source, and says nothing of it and itself.
  if (!same || !manifest.empty()) {
    KV_ASSIGN_OR_RETURN(relation, ReadManifest(io, manifest, second));
  }
  std::vector<Manifest> inferred;
  if (!relation) {
    inferred = InferRelations(first, second);
    relation = inferred.front();
  }
  return ModelPair{std::move(first), std::move(second), *std::move(relation), std::move(inferred),
                   same};
}

std::optional<ModelPair> LoadPair(Io& io, const std::string& before, const std::string& after,
                                  const std::string& manifest, const CommonFlags& flags) {
  auto pair = ReadPair(io, before, after, manifest, flags);
  if (pair.ok()) return *std::move(pair);
  Complain(io, "", pair.status());
  return std::nullopt;
}

std::optional<Converted> LoadConverted(Io& io, const std::string& path, const std::string& manifest,
                                       const CommonFlags& flags, int* exit) {
  *exit = kUnreadable;
  auto model = Load(io, path, flags);
  if (!model) return std::nullopt;
  bool broken = false;
  auto found = ManifestOf(io, manifest, *model, &broken);
  if (broken) return std::nullopt;
  if (!found) {
    Complain(io, path, "no manifest lies beside it or in it; convert the model first");
    *exit = kFindings;
    return std::nullopt;
  }
  return Converted{*std::move(model), *std::move(found)};
}

}  // namespace kvlift::cli

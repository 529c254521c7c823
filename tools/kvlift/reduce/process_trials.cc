#include "kvlift/reduce/process_trials.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "base/sha256.h"
#include "base/status.h"
#include "contract/manifest_text.h"
#include "fmt/format.h"
#include "onnxio/files/cleanup.h"
#include "onnxio/files/errno_status.h"

namespace kvlift::cli {
namespace {

namespace fs = std::filesystem;

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  return file ? absl::OkStatus() : ErrnoStatus(errno, path);
}

// The bytes of a subject's files.
struct Image {
  std::vector<std::string> models;
  std::string manifest;  // empty if the subject is no pair

  std::string Digest() const {
    Sha256 sha;
    for (const std::string& model : models) {
      sha.Update(fmt::format("{} ", model.size()));
      sha.Update(model);
    }
    sha.Update(manifest);
    return sha.FinishHex();
  }
};

absl::StatusOr<Image> ImageOf(const Subject& subject) {
  Image image;
  KV_ASSIGN_OR_RETURN(image.models.emplace_back(), SerializeModel(*subject.model.proto));
  if (!subject.is_pair()) return image;
  KV_ASSIGN_OR_RETURN(image.models.emplace_back(),
                      SerializeModel(*subject.conversion->model.proto));
  Manifest relation = subject.conversion->relation;
  relation.source_sha256 = Sha256Hex(image.models[0]);
  image.manifest = ManifestText(relation);
  return image;
}

}  // namespace

TrialFolder::TrialFolder(std::string path) : path_(std::move(path)) {
  slots_.push_back(NoteTemporary(path_));
}

absl::StatusOr<std::unique_ptr<TrialFolder>> TrialFolder::Make() {
  std::error_code error;
  std::string pattern = (fs::temp_directory_path(error) / "kvlift-reduce-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) return ErrnoStatus(errno, pattern);
  return std::unique_ptr<TrialFolder>(new TrialFolder(pattern));
}

TrialFolder::~TrialFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
  for (const int slot : slots_) ForgetTemporary(slot);
}

std::string TrialFolder::File(const std::string& name) {
  std::string path = (fs::path(path_) / name).string();
  if (std::find(names_.begin(), names_.end(), name) == names_.end()) {
    names_.push_back(name);
    slots_.push_back(NoteTemporary(path));
  }
  return path;
}

ProcessTrials::ProcessTrials(TrialOptions options, TrialFolder* folder)
    : options_(std::move(options)), folder_(folder) {}

std::vector<std::string> ProcessTrials::PathsOf(bool pair, size_t slot) {
  if (!pair) return {folder_->File(fmt::format("{}-model.onnx", slot))};
  folder_->File(fmt::format("{}-after.kv.json", slot));
  return {folder_->File(fmt::format("{}-before.onnx", slot)),
          folder_->File(fmt::format("{}-after.onnx", slot))};
}

absl::Status ProcessTrials::Start(size_t id, const std::vector<std::string>& files, size_t slot,
                                  Processes* processes) {
  const bool pair = files.size() == 2;
  std::vector<std::string> words = {pair ? "verify" : "convert"};
  words.insert(words.end(), files.begin(), files.end());
  words.insert(words.end(),
               {"--json", "--color", "never", "--threads", fmt::format("{}", options_.threads)});
  if (!pair) {
    words.insert(words.end(),
                 {"--dry-run", "-o", (fs::path(folder_->path()) / "no.onnx").string()});
  }
  for (const std::string& folder : options_.data_folders) {
    words.insert(words.end(), {"--data-dir", folder});
  }
  words.insert(words.end(), options_.arguments.begin(), options_.arguments.end());
  return processes->Start(id, words, folder_->File(fmt::format("{}.out", slot)),
                          folder_->File(fmt::format("{}.err", slot)));
}

Observation ProcessTrials::Ended(const ProcessEnd& end, bool pair, size_t slot) {
  const ProcessOutput printed{ReadWhole(folder_->File(fmt::format("{}.out", slot))),
                              ReadWhole(folder_->File(fmt::format("{}.err", slot)))};
  return Observe(pair ? "verify" : "convert", end, printed, options_.limits);
}

absl::StatusOr<Observation> ProcessTrials::RunOn(const std::vector<std::string>& files) {
  Processes processes(options_.limits);
  KV_RETURN_IF_ERROR(Start(0, files, 0, &processes));
  return Ended(processes.WaitForOne().second, files.size() == 2, 0);
}

absl::StatusOr<Observation> ProcessTrials::RunOn(const Subject& subject) {
  const std::vector<std::string> files = PathsOf(subject.is_pair(), 0);
  KV_RETURN_IF_ERROR(Write(subject, files));
  return RunOn(files);
}

absl::Status ProcessTrials::Write(const Subject& subject, const std::vector<std::string>& files) {
  KV_ASSIGN_OR_RETURN(const Image image, ImageOf(subject));
  for (size_t k = 0; k < files.size(); ++k) {
    KV_RETURN_IF_ERROR(WriteText(files[k], image.models[k]));
  }
  return files.size() < 2 ? absl::OkStatus() : WriteText(ManifestPathFor(files[1]), image.manifest);
}

absl::StatusOr<std::vector<OutputFile>> ProcessTrials::FilesOf(const Subject& subject,
                                                               const std::string& folder) {
  const auto in_folder = [&](const char* name) { return (fs::path(folder) / name).string(); };
  KV_ASSIGN_OR_RETURN(Image image, ImageOf(subject));
  if (!subject.is_pair()) return {{{in_folder("model.onnx"), std::move(image.models[0])}}};
  return {{{in_folder("before.onnx"), std::move(image.models[0])},
           {in_folder("after.onnx"), std::move(image.models[1])},
           {in_folder("after.kv.json"), std::move(image.manifest)}}};
}

bool ProcessTrials::over() const {
  if (!status_.ok()) return true;
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
  return options_.budget_seconds > 0 && passed.count() > options_.budget_seconds;
}

// Candidates are tried in their order, several at a time. The one that is returned is the first
// that shows the property, whichever ends first; processes of later ones are stopped.
std::optional<Trials::Found> ProcessTrials::FindFirst(size_t count, const Make& make) {
  Processes processes(options_.limits);
  std::map<size_t, Running> running;  // by candidate
  std::vector<size_t> free;
  for (size_t slot = options_.jobs; slot > 0; --slot) free.push_back(slot);
  std::optional<Found> best;
  const auto start = [&](size_t k) -> absl::Status {
    std::optional<Subject> subject = make(k);
    if (!subject) return absl::OkStatus();
    KV_ASSIGN_OR_RETURN(const Image image, ImageOf(*subject));
    std::string digest = image.Digest();
    if (failed_.contains(digest)) return absl::OkStatus();
    const size_t slot = free.back();
    const std::vector<std::string> files = PathsOf(subject->is_pair(), slot);
    KV_RETURN_IF_ERROR(Write(*subject, files));
    KV_RETURN_IF_ERROR(Start(k, files, slot, &processes));
    free.pop_back();
    ++count_;
    running[k] = {*std::move(subject), std::move(digest), slot};
    return absl::OkStatus();
  };
  for (size_t next = 0; !over();) {
    if (!best && next < count && !free.empty()) {
      status_ = start(next++);
      continue;
    }
    const bool earlier = !running.empty() && (!best || running.begin()->first < best->index);
    if (!earlier) break;
    const auto [k, end] = processes.WaitForOne();
    Running ended = std::move(running.at(k));
    running.erase(k);
    free.push_back(ended.slot);
    if (property_->IsShown(Ended(end, ended.subject.is_pair(), ended.slot))) {
      if (!best || k < best->index) best = Found{k, std::move(ended.subject)};
    } else {
      failed_.insert(std::move(ended.digest));
    }
  }
  if (over() && !running.empty() && best && running.begin()->first < best->index) {
    return std::nullopt;
  }
  return best;
}

}  // namespace kvlift::cli

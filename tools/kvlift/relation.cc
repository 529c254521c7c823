#include "relation.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <set>

#include "contract/manifest_text.h"
#include "fmt/format.h"
#include "ir/types.h"
#include "onnxio/errno_status.h"
#include "onnxio/fd.h"
#include "rewrite/convert.h"
#include "rewrite/rule.h"
#include "verify/flow.h"

namespace kvlift::cli {
namespace {

// Of a manifest; those of the largest models take a hundredth of this.
constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;

// NotFound: no such file. A pipe is not waited for, and a file that never ends is not read.
absl::StatusOr<std::string> ReadText(const std::string& path) {
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

// A model carries its own manifest: one beside it that says something else is of another run, or
// was changed by hand.
// What was proved is only written beside it.
bool IsOfAnotherConversion(Manifest beside, const Model& model) {
  auto own = ManifestFromMetadata(*model.proto);
  if (!own.ok()) return false;
  own->proved.clear();
  beside.proved.clear();
  return ManifestText(*own) != ManifestText(beside);
}

const onnx::ValueInfoProto* Find(
    const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& values,
    const std::string& name) {
  for (const auto& v : values) {
    if (v.name() == name) return &v;
  }
  return nullptr;
}

std::vector<Dim> DimsOf(const onnx::ValueInfoProto& value) {
  return TensorType::From(value.type()).shape.value_or(std::vector<Dim>());
}

// Symbols of past and present that are not the same.
bool Differs(const onnx::ValueInfoProto& past, const onnx::ValueInfoProto& present, size_t axis) {
  const std::vector<Dim> a = DimsOf(past), b = DimsOf(present);
  return axis < a.size() && a.size() == b.size() && !a[axis].param.empty() &&
         !b[axis].param.empty() && a[axis].param != b[axis].param;
}

std::string UsualLayout(size_t rank, int64_t axis) {
  if (rank == 3) return axis == 2 ? "BDS" : axis == 1 ? "BSD" : "SBD";
  if (rank == 4) return axis == 3 ? "BNDS" : axis == 2 ? "BNSD" : axis == 1 ? "BSND" : "SBND";
  if (rank == 5) return axis == 3 ? "KBNSD" : "KBSND";
  return axis == 4 ? "LKBNSD" : "LKBSND";
}

// What two models without a manifest have in common: caches as they are found in BEFORE, inputs
// that AFTER has in addition by what they are used for, all else by equal names.
class Inferred {
 public:
  Inferred(const Model& before, const Model& after)
      : before_(*before.proto), after_(*after.proto), flow_(*after.proto) {
    const auto inspection = Inspect(before, AllRules());
    if (!inspection.ok()) return;
    for (const CacheReport& cache : inspection->caches) AddCache(cache);
  }

  Manifest Run() {
    std::set<std::string> constants;
    for (const auto& t : after_.graph().initializer()) constants.insert(t.name());
    m_.capacity_dim = "max_sequence_length";
    for (const auto& v : after_.graph().input()) {
      if (constants.count(v.name()) == 0) AddInput(v);
    }
    for (const auto& v : after_.graph().output()) {
      const auto cache = outputs_.find(v.name());
      if (cache != outputs_.end()) {
        m_.outputs.push_back({v.name(), "cache", cache->second, ""});
      } else if (Find(before_.graph().output(), v.name()) != nullptr) {
        m_.outputs.push_back({v.name(), "same", "", ""});
      }
    }
    for (const auto& v : before_.graph().input()) {
      if (Find(after_.graph().input(), v.name()) == nullptr) {
        m_.dropped.push_back({v.name(), "not read"});
      }
    }
    return std::move(m_);
  }

 private:
  void AddCache(const CacheReport& cache) {
    const auto* in = Find(after_.graph().input(), cache.input);
    const auto* out = Find(after_.graph().output(), cache.output);
    const auto* theirs = Find(before_.graph().input(), cache.input);
    if (in == nullptr || out == nullptr || theirs == nullptr) return;
    const std::vector<Dim> dims = DimsOf(*in), present = DimsOf(*out);
    const auto axis = static_cast<size_t>(cache.axis);
    if (dims.size() != DimsOf(*theirs).size() || axis >= dims.size()) return;
    ManifestCache c;
    c.id = cache.id;
    c.layer = cache.layer;
    c.role = cache.role;
    c.input = cache.input;
    c.output = cache.output;
    c.dtype = cache.dtype;
    c.layout = cache.layout.empty() ? UsualLayout(dims.size(), cache.axis) : cache.layout;
    c.axis = cache.axis;
    c.alias = "copy";
    const auto* later = Find(before_.graph().output(), cache.output);
    const bool growing = cache.growing || (later != nullptr && Differs(*theirs, *later, axis));
    c.source = {c.input, c.output, cache.kind, c.layout, c.axis, growing, {}};
    const bool same =
        present.size() == dims.size() && present[axis].known() && present[axis] == dims[axis];
    c.grows = growing && !same && flow_.Maker(cache.output) != "TensorScatter";
    inputs_[c.input] = c.id;
    outputs_[c.output] = c.id;
    if (!c.grows) capacity_ = dims[axis].param;
    m_.caches.push_back(std::move(c));
  }

  void AddInput(const onnx::ValueInfoProto& value) {
    const std::string& name = value.name();
    const std::vector<Dim> dims = DimsOf(value);
    ManifestInput input;
    input.name = name;
    const auto cache = inputs_.find(name);
    if (cache != inputs_.end()) {
      input.as = "cache";
      input.id = cache->second;
    } else if (Find(before_.graph().input(), name) != nullptr) {
      input.as = "same";
      for (size_t k = 1; k < dims.size(); ++k) {
        if (capacity_.empty() || dims[k].param != capacity_) continue;
        input.as = "pad_to_capacity";
        input.axis = static_cast<int64_t>(k);
      }
    } else if (const auto length = flow_.LengthAtOperator(name);
               length && length->first != Length::kLast && length->second == 0) {
      input.as = "control";
      input.value = length->first == Length::kTotal ? "T" : "P";
      input.dtype = ElementTypeName(value.type().tensor_type().elem_type());
      for (const Dim& dim : dims) input.shape.push_back(dim.value == 1 ? "1" : "B");
    } else {
      return;
    }
    m_.inputs.push_back(std::move(input));
  }

  const onnx::ModelProto &before_, &after_;
  const Flow flow_;
  std::map<std::string, std::string> inputs_, outputs_;  // names to ids
  std::string capacity_;                                 // the symbol
  Manifest m_;
};

}  // namespace

std::optional<Manifest> ManifestOf(Io& io, const std::string& given, const Model& model,
                                   bool* broken) {
  *broken = false;
  const std::string path = given.empty() ? ManifestPathFor(model.path) : given;
  const auto text = ReadText(path);
  if (!text.ok() && !(given.empty() && absl::IsNotFound(text.status()))) {
    Complain(io, path, std::string(text.status().message()));
    *broken = true;
    return std::nullopt;
  }
  auto manifest = text.ok() ? ManifestFromJson(*text) : ManifestFromMetadata(*model.proto);
  if (manifest.ok()) {
    if (text.ok() && given.empty() && IsOfAnotherConversion(*manifest, model)) {
      Complain(io, path, "is of another conversion than the model: the model carries another one");
    }
    return *std::move(manifest);
  }
  if (text.ok() || !absl::IsNotFound(manifest.status())) {
    Complain(io, text.ok() ? path : model.path, std::string(manifest.status().message()));
    *broken = true;
  }
  return std::nullopt;
}

std::optional<Manifest> FindRelation(Io& io, const std::string& given, const Model& before,
                                     const Model& after) {
  bool broken = false;
  auto manifest = ManifestOf(io, given, after, &broken);
  if (manifest || broken) return manifest;
  Manifest inferred = Inferred(before, after).Run();
  Complain(io, after.path,
           fmt::format("has no manifest: {} caches are related as they are found in {}, all else "
                       "by its name",
                       inferred.caches.size(), before.path));
  return inferred;
}

}  // namespace kvlift::cli

// The native half of the Python package: models, conversions and verdicts. Documents are passed as
// JSON text, as the program prints them (docs/schema). Every call that does work releases the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/coded.h"
#include "contract/manifest_text.h"
#include "fmt/format.h"
#include "kvlift/commands/cmd_verify_infer.h"
#include "kvlift/fleet/processes.h"
#include "kvlift/inputs/contract_files.h"
#include "kvlift/inputs/conversion.h"
#include "kvlift/inputs/external.h"
#include "kvlift/program.h"
#include "kvlift/reports/documents.h"
#include "lint/lint.h"
#include "lint/target.h"
#include "nlohmann/json.hpp"
#include "onnxio/bytes/contents.h"
#include "onnxio/model/model.h"
#include "pipeline/pipeline.h"
#include "ports/ports.h"
#include "verify/judge/verify.h"
#include "verify/variants/drawn_weights.h"

namespace nb = nanobind;

namespace kvlift::python {
namespace {

using nlohmann::ordered_json;

// Becomes kvlift.Error, with the finding code if there is one.
class Failure : public std::exception {
 public:
  explicit Failure(const absl::Status& status)
      : message_(status.message()), code_(CodeOf(status)) {}

  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& code() const { return code_; }

 private:
  std::string message_, code_;
};

void Check(const absl::Status& status) {
  if (!status.ok()) throw Failure(status);
}

template <typename T>
T Value(absl::StatusOr<T> result) {
  Check(result.status());
  return *std::move(result);
}

// ASCII only: names in a model may not be valid UTF-8, which Python's str requires.
std::string Text(const ordered_json& json) {
  return json.dump(-1, ' ', true, ordered_json::error_handler_t::replace);
}

std::string Verdict(const VerifyReport& report) { return Text(cli::VerifyDocument(report)); }

// A path as the bytes that the system takes, which may be no valid UTF-8.
std::string PathOf(const nb::bytes& path) { return {path.c_str(), path.size()}; }

// Returns a path as Python's str (os.fsdecode).
nb::str TextOfPath(const std::string& path) {
  return nb::steal<nb::str>(
      PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size())));
}

LoadOptions HowToLoad(const std::vector<nb::bytes>& data_folders, bool trust_links) {
  LoadOptions options;
  for (const nb::bytes& folder : data_folders) options.data_folders.push_back(PathOf(folder));
  options.data.hard_links = trust_links;
  return options;
}

Model LoadFile(const nb::bytes& path, const std::vector<nb::bytes>& data_folders,
               bool trust_links) {
  const std::string file = PathOf(path);
  const LoadOptions options = HowToLoad(data_folders, trust_links);
  const nb::gil_scoped_release unlocked;
  return Value(LoadModel(file, options));
}

Model LoadBytes(const nb::bytes& bytes, const std::vector<nb::bytes>& data_folders,
                bool trust_links) {
  std::string text(bytes.c_str(), bytes.size());
  const LoadOptions options = HowToLoad(data_folders, trust_links);
  const std::string base = options.data_folders.empty() ? "" : options.data_folders.front();
  const nb::gil_scoped_release unlocked;
  return Value(LoadModelBytes(std::move(text), base, options));
}

nb::bytes BytesOf(const Model& model) {
  std::string bytes;
  {
    const nb::gil_scoped_release unlocked;
    bytes = Value(SerializeModel(*model.proto));
  }
  return nb::bytes(bytes.data(), bytes.size());
}

std::string InspectText(const Model& model) {
  const nb::gil_scoped_release unlocked;
  return Text(cli::InspectDocument(model, Value(Inspect(model, AllRules()))));
}

std::optional<Manifest> ReadManifest(const std::optional<std::string>& text, const Model& model) {
  if (text) return Value(ManifestFromJson(*text));
  auto stamped = ManifestFromMetadata(*model.proto);
  if (absl::IsNotFound(stamped.status())) return std::nullopt;
  return Value(std::move(stamped));
}

std::string CheckText(const Model& model, const std::optional<std::string>& manifest,
                      const std::string& target) {
  const nb::gil_scoped_release unlocked;
  const auto profile = FindProfile(target);
  if (!profile && target != "spec") {
    throw Failure(absl::InvalidArgumentError(fmt::format("unknown target '{}'", target)));
  }
  const auto relation = ReadManifest(manifest, model);
  ordered_json findings = ordered_json::array();
  for (const Lint& lint : Value(LintModel(model, relation ? &*relation : nullptr, profile))) {
    findings.push_back({{"severity", lint.severity == Severity::kError ? "error" : "warning"},
                        {"code", lint.finding.code},
                        {"text", lint.finding.text},
                        {"nodes", lint.finding.nodes},
                        {"values", lint.finding.values}});
  }
  return Text(findings);
}

// Returns the text of inference_metadata.yaml.
std::string MetadataOf(const Model& model) {
  const nb::gil_scoped_release unlocked;
  const PortReading reading = Value(ReadPorts(*model.proto));
  if (reading.ports) return MetadataText(*reading.ports);
  throw Failure(Coded(reading.refusal->code, absl::FailedPreconditionError(reading.refusal->text)));
}

VerifyOptions HowToVerify(bool full, uint64_t seed, int threads, const std::string& weights) {
  VerifyOptions options;
  options.full = full;
  options.seed = seed;
  options.threads = threads;
  options.random_weights = Value(ReadWeights(weights));
  return options;
}

std::string VerifyText(const Model& before, const Model& after,
                       const std::optional<std::string>& manifest, bool full, uint64_t seed,
                       int threads, const std::string& weights) {
  const nb::gil_scoped_release unlocked;
  for (const Model* model : {&before, &after}) Check(CheckContents(*model->proto));
  const auto given = ReadManifest(manifest, after);
  VerifyOptions options = HowToVerify(full, seed, threads, weights);
  options.source = true;
  if (given) return Verdict(Value(Verify(before, after, *given, options)));
  std::vector<Manifest> relations = cli::InferRelations(before, after);
  size_t judged = 0;
  return Verdict(Value(cli::VerifyEach(before, after, &relations, options, &judged)));
}

// A model that was converted and proved, or why not. The converted model refers to data of its
// source.
class Converted {
 public:
  Converted(Model source, ProvedConversion converted)
      : source_(std::move(source)),
        converted_(std::make_shared<ProvedConversion>(std::move(converted))) {
    if (!has_model()) return;
    struct Held {
      std::shared_ptr<const ProvedConversion> converted;
      onnx::ModelProto stamped;
    };
    auto held = std::make_shared<Held>(Held{converted_, *conversion().model});
    StampMetadata(conversion().manifest, &held->stamped);
    result_.proto = std::shared_ptr<const onnx::ModelProto>(held, &held->stamped);
    result_.base_dir = source_.base_dir;
  }

  bool has_model() const { return converted_->accepted && conversion().model; }
  // Returns true if neither equality nor a difference was shown.
  bool inconclusive() const {
    return conversion().model && !has_model() &&
           converted_->equality != ConversionVerdict::kDifferent;
  }
  std::string reason() const { return converted_->reason; }
  std::string Document() const {
    const ordered_json tests =
        converted_->tests ? cli::VerifyDocument(*converted_->tests) : ordered_json(nullptr);
    return Text(cli::ConvertDocument(*converted_, {}, tests));
  }
  Model Result() const {
    if (converted_->stopped_after) {
      throw Failure(absl::FailedPreconditionError(
          fmt::format("stopped after {}, without a model", WordOf(*converted_->stopped_after))));
    }
    if (!has_model()) {
      throw Failure(absl::FailedPreconditionError(
          converted_->reason.empty() ? "nothing was converted" : converted_->reason));
    }
    return result_;
  }
  std::string ManifestJson() const { return ManifestText(conversion().manifest); }
  std::string Genai() const { return conversion().genai; }

  std::string Verify(bool full, uint64_t seed, int threads, const std::string& weights) const {
    const nb::gil_scoped_release unlocked;
    const Model after = Result();
    const VerifyReport report = Value(kvlift::Verify(source_, after, conversion().manifest,
                                                     HowToVerify(full, seed, threads, weights)));
    return Verdict(report);
  }

  // Writes the files that `convert -o` writes, and returns their names. dry_run: writes nothing.
  nb::list Save(const nb::bytes& path, bool force, const std::string& external,
                bool dry_run) const {
    const std::string output = PathOf(path);
    std::vector<std::string> names;
    {
      const nb::gil_scoped_release unlocked;
      names = Write(output, force, Value(cli::ReadExternalMode(external)), dry_run);
    }
    nb::list texts;
    for (const std::string& name : names) texts.append(TextOfPath(name));
    return texts;
  }

 private:
  const Conversion& conversion() const { return converted_->conversion; }

  std::vector<std::string> Write(const std::string& output, bool force, cli::ExternalMode external,
                                 bool dry_run) const {
    onnx::ModelProto stamped = *Result().proto;
    auto placed = Value(cli::PlaceExternalData(source_.base_dir, output, external, &stamped));
    const ModelImage image = Value(ImageOf(stamped, placed.locations));
    std::vector<OutputFile> files = std::move(placed.files);
    files.push_back({ManifestPathFor(output), ManifestJson()});
    for (OutputFile& file : Value(cli::ContractFilesOf(conversion(), output)).files) {
      files.push_back(std::move(file));
    }
    files.push_back({output, {}, image.pieces});
    std::vector<std::string> names;
    std::error_code error;
    for (const OutputFile& file : files) {
      if (!source_.path.empty() && std::filesystem::equivalent(file.path, source_.path, error)) {
        throw Failure(absl::AlreadyExistsError(file.path + " is the source"));
      }
      if (!force && std::filesystem::exists(file.path, error)) {
        throw Failure(absl::AlreadyExistsError(file.path + " exists; force=True overwrites it"));
      }
      names.push_back(file.path);
    }
    if (!dry_run) Check(WriteFiles(files));
    return names;
  }

  Model source_, result_;
  std::shared_ptr<const ProvedConversion> converted_;
};

Converted ConvertOne(const Model& model, cli::ConvertFlags flags) {
  const nb::gil_scoped_release unlocked;
  const ConvertOptions options = Value(cli::OptionsOf(flags));
  if (const auto freeze = cli::FreezeOf(flags)) {
    if (freeze->tokens.size() > 1) {
      throw Failure(absl::InvalidArgumentError(
          "freeze: a conversion is one graph; give one number of tokens"));
    }
    return Converted(
        model,
        Value(ConvertFrozen(model, options, AllRules(), *freeze, cli::ProvingOf(flags))).front());
  }
  return Converted(model, Value(ConvertAndProve(model, options, AllRules(), cli::ProvingOf(flags),
                                                cli::StepsOf(flags))));
}

// Binds the options of `convert`, with their names of the command line and _ for -.
void BindFlags(nb::module_& m) {
  using cli::ConvertFlags;
  nb::class_<ConvertFlags>(m, "ConvertFlags")
      .def(nb::init<>())
      .def_rw("max_seq_len", &ConvertFlags::max_seq_len)
      .def_rw("target", &ConvertFlags::target)
      .def_rw("control", &ConvertFlags::control)
      .def_rw("mask", &ConvertFlags::mask)
      .def_rw("read", &ConvertFlags::read)
      .def_rw("padding", &ConvertFlags::padding)
      .def_rw("io_names", &ConvertFlags::io_names)
      .def_rw("layout", &ConvertFlags::layout)
      .def_rw("mode", &ConvertFlags::mode)
      .def_rw("rotary", &ConvertFlags::rotary)
      .def_rw("rounding", &ConvertFlags::rounding)
      .def_rw("step_length", &ConvertFlags::step_length)
      .def_rw("window", &ConvertFlags::window)
      .def_rw("cache_tensors", &ConvertFlags::cache_tensors)
      .def_rw("quantize_cache", &ConvertFlags::quantize_cache)
      .def_rw("tree_mask", &ConvertFlags::tree_mask)
      .def_rw("freeze", &ConvertFlags::freeze)
      .def_rw("accept", &ConvertFlags::accept)
      .def_rw("stop_after", &ConvertFlags::stop_after)
      .def("set_dump_dir",
           [](ConvertFlags& flags, const nb::bytes& path) { flags.dump_dir = PathOf(path); })
      .def_rw("only", &ConvertFlags::only)
      .def_rw("skip", &ConvertFlags::skip)
      .def_rw("allow_partial", &ConvertFlags::allow_partial);
}

// Calls `error` with a message and a code.
void RaiseFailuresAs(nb::handle error) {
  nb::register_exception_translator(
      [](const std::exception_ptr& raised, void* type) {
        try {
          std::rethrow_exception(raised);
        } catch (const Failure& failure) {
          const nb::handle kind(static_cast<PyObject*>(type));
          const nb::object instance =
              kind(nb::str(failure.what()), nb::str(failure.code().c_str()));
          PyErr_SetObject(kind.ptr(), instance.ptr());
        }
      },
      error.ptr());
}

// The program. `self` is what runs it again, for commands that start processes.
int ProgramOf(const std::vector<nb::bytes>& words, const std::vector<nb::bytes>& self) {
  const auto strings = [](const std::vector<nb::bytes>& from) {
    std::vector<std::string> made;
    for (const nb::bytes& word : from) made.emplace_back(word.c_str(), word.size());
    return made;
  };
  const std::vector<std::string> line = strings(words);
  cli::RunSelfAs(strings(self));
  const nb::gil_scoped_release unlocked;
  return cli::Program(line);
}

}  // namespace
}  // namespace kvlift::python

NB_MODULE(_native, m) {
  namespace kv = kvlift::python;
  m.attr("version") = kvlift::cli::kVersion;
  nb::class_<kvlift::Model>(m, "Model")
      .def_prop_ro("path", [](const kvlift::Model& model) { return kv::TextOfPath(model.path); })
      .def_prop_ro("sha256", &kvlift::Model::Sha256)
      .def("to_bytes", &kv::BytesOf);
  nb::class_<kv::Converted>(m, "Converted")
      .def_prop_ro("has_model", &kv::Converted::has_model)
      .def_prop_ro("inconclusive", &kv::Converted::inconclusive)
      .def_prop_ro("reason", &kv::Converted::reason)
      .def("document", &kv::Converted::Document)
      .def("model", &kv::Converted::Result)
      .def("manifest", &kv::Converted::ManifestJson)
      .def("genai", &kv::Converted::Genai)
      .def("verify", &kv::Converted::Verify)
      .def("save", &kv::Converted::Save);
  kv::BindFlags(m);
  m.def("load_file", &kv::LoadFile);
  m.def("load_bytes", &kv::LoadBytes);
  m.def("inspect", &kv::InspectText);
  m.def("convert", &kv::ConvertOne);
  m.def("verify", &kv::VerifyText, nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(),
        nb::arg(), nb::arg());
  m.def("metadata", &kv::MetadataOf);
  m.def("check", &kv::CheckText, nb::arg(), nb::arg().none(), nb::arg());
  m.def("program", &kv::ProgramOf);
  m.def("raise_failures_as", [](nb::object error) {
    static nb::object* const kept = new nb::object(std::move(error));
    kv::RaiseFailuresAs(*kept);
  });
}

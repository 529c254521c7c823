// LIBS: rewrites verify
// SRCS: support/case_edits.cc support/case_file.cc support/models.cc
// Every kind of wrong conversion that verification has to tell from a right one: each is made as a
// mutant of some model, is held by a test of its own, or cannot be.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "rewrite/convert/convert.h"
#include "support/case_file.h"
#include "support/models.h"
#include "verify/judge/verify.h"

namespace kvlift {
namespace {

struct Row {
  const char* group;
  const char* kind;
  std::vector<const char*> mutants;  // beginnings of names; all of them must be made
  const char* test = "";             // "FILE: TEXT IN IT", where no mutant shows it
  const char* why = "";              // why there can be none
};

const std::vector<Row>& Catalogue() {
  static const auto& kRows = *new std::vector<Row>{
      {"write", "axis", {"write axis + 1", "write axis - 1", "write axis left at its default"}},
      {"write", "index one off", {"write index + 1", "write index - 1"}},
      {"write", "index dropped", {"write index dropped"}},
      {"write", "index cut to 32 bits", {"write index cut to 32 bits"}},
      {"write", "index of the previous step", {"index of the previous step"}},
      {"write",
       "index of another sequence",
       {"write index of sequence 0", "mean write index", "write indices reversed"}},
      {"write", "index clamped", {"write index clamped two before the end"}},
      {"write", "update too long", {"update longer by one"}},
      {"write", "linear or circular", {"circular mode", "linear mode"}},
      {"write", "modulo a wrong capacity", {"write index modulo capacity - 1"}},
      {"write",
       "modulo on all coordinates",
       {},
       "",
       "TensorScatter takes one index per sequence; there are no other coordinates"},
      {"write", "the index of another layer", {"cache of another write"}},
      {"wiring", "keys and values", {"keys and values swapped", "updates swapped"}},
      {"wiring", "another layer's cache", {"keys of another layer", "values of another layer"}},
      {"wiring", "the past instead of the present", {"stale "}},
      {"wiring", "output taken before the write", {"output taken before the write"}},
      {"wiring", "two caches at one output", {"two caches bound to one output"}},
      {"wiring", "outputs renamed", {"outputs swapped", "outputs of two caches swapped"}},
      {"wiring", "no input", {"past replaced by zeros"}},
      {"wiring", "sequences that change places", {"sequences stay in place"}},
      {"length and mask", "length dropped", {"valid length dropped"}},
      {"length and mask", "length one off", {"valid length + 1", "valid length - 1"}},
      {"length and mask",
       "another length",
       {"valid length is the write index", "valid length is the capacity",
        "valid length of sequence 0", "valid lengths reversed"}},
      {"length and mask", "causal order", {"is_causal dropped", "causal from the top left"}},
      {"length and mask", "causal order added", {"is_causal added"}},
      {"length and mask",
       "mask shifted",
       {"mask shifted by one row", "mask shifted by one key", "mask without its last key"}},
      {"length and mask", "mask turned", {"mask transposed", "mask inverted"}},
      {"length and mask", "mask twice or not at all", {"mask applied twice", "mask dropped"}},
      {"length and mask", "mask of another sequence", {"mask of sequence 0"}},
      {"length and mask", "what hides", {"hidden keys at -10000", "mask hides by -4 only"}},
      {"length and mask", "a window or bias lost", {"bias in the mask dropped"}},
      {"arithmetic",
       "scale",
       {"scale missing", "scale applied twice", "scale 1/d", "scale left at its default"}},
      {"arithmetic",
       "scale of the values' heads",
       {},
       "decoders/draw.py: v_head",
       "made of models whose values have heads of another size: random ones have"},
      {"arithmetic", "softcap", {"softcap dropped", "softcap added"}},
      {"arithmetic", "softmax", {"softmax over the queries", "softmax in half precision"}},
      {"arithmetic", "accumulation", {"weights rounded to half", "keys rounded to half"}},
      {"arithmetic",
       "truncation to bfloat16",
       {},
       "exec/fusing_test.cc: bfloat16",
       "how a type rounds is no choice of a graph"},
      {"heads", "grouping", {"heads tiled instead of repeated", "key heads reversed"}},
      {"heads", "splitting", {"query split as (D, N)", "result not transposed"}},
      {"position", "positions", {"positions + 1", "positions without the past"}},
      {"position", "another sequence's", {"positions of sequence 0"}},
      {"position", "rotation behind the cache", {"rotated behind the cache"}},
      {"graph", "versions", {"opset 23", "IR version 10"}},
      {"graph", "inputs and outputs", {"an input that nobody reads", "an output left out"}},
      {"graph", "valid length beside a past", {"valid length beside a past"}},
      {"graph", "a false claim of an alias", {}, "verify_test.cc: FalseAliasIsCaught"},
      {"graph", "a cache that is none", {"a cache of the source that does not exist"}},
      {"graph", "one cache converted twice", {"one buffer for two caches"}},
      {"graph",
       "declared shapes that are wrong",
       {},
       "lint_test.cc: TEST",
       "nothing that is run reads them; the linter does"},
      {"aliasing", "the past read late", {"past read after the write"}},
      {"aliasing", "the past as an output", {"a past that is an output, too"}},
      {"aliasing", "one buffer twice", {"one buffer for two caches"}},
      {"aliasing",
       "memory of the past used again",
       {},
       "exec/alias_modes_test.cc: RetiredMemoryMayNotBeRead"},
      {"aliasing", "a partial write", {}, "verify/self_checks_test.cc: TEST_F"},
      {"comparer", "values", {"one element moved", "all signs turned"}},
      {"comparer",
       "a bound too wide, one sequence, sizes",
       {},
       "verify/oracle_test.cc: AComparerThatSeesTooLittleIsFound"},
      {"comparer", "NaN", {}, "verify_test.cc: NanInTheSourceIsNoVerdict"},
      {"comparer", "an output left out", {}, "verify_test.cc: RenamedOutputThatTheSourceLacks"},
  };
  return kRows;
}

// Names of the mutants that are made of a source's conversion.
void Collect(const Model& source, const ConvertOptions& options, std::set<std::string>* names) {
  auto conversion = Convert(source, options, AllRules());
  ASSERT_TRUE(conversion.ok() && conversion->model);
  const Model after = AsModel(*std::move(conversion->model));
  VerifyOptions run;
  run.threads = 1;
  const auto report = Verify(source, after, conversion->manifest, run);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->verdict, VerdictKind::kEqual) << report->reason;
  for (const ControlResult& control : report->controls) names->insert(control.mutant);
}

bool IsMade(const std::set<std::string>& names, const std::string& beginning) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name.rfind(beginning, 0) == 0; });
}

bool Stands(const std::string& place) {
  const size_t colon = place.find(": ");
  const auto tests = std::filesystem::path(KVLIFT_TESTDATA_DIR).parent_path() / "tests";
  std::ifstream file(tests / place.substr(0, colon));
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return text.find(place.substr(colon + 2)) != std::string::npos;
}

TEST(MutationCatalogue, EveryKindIsMadeOrHeld) {
  std::set<std::string> names;
  for (const char* model : {"llama_optimum", "toy_scatter_ts", "llama_genai_gqa", "gpt_oss_optimum",
                            "llama_static_ts", "llama_attention_opset23"}) {
    Collect(LoadTestModel(model), {}, &names);
  }
  for (const char* name :
       {"growing_concat_beams", "ring_buffer_scatter", "decomposed_attention_softcap",
        "decomposed_attention_bias", "attention_op_float_mask", "attention_op_mask",
        "attention_op_own_groups", "decomposed_attention_sliding", "growing_concat_bsnd",
        "attention_op_scale_softcap", "fixed_buffer_scatter_free_slots"}) {
    const auto c = LoadCase(fmt::format("{}/rewrites/{}.onnxtxt", KVLIFT_TESTDATA_DIR, name));
    ASSERT_TRUE(c.ok()) << c.status();
    const auto before = ParseModelText(c->before);
    ASSERT_TRUE(before.ok()) << before.status();
    Collect(AsModel(*before), c->options, &names);
  }
  for (const Row& row : Catalogue()) {
    SCOPED_TRACE(fmt::format("{}: {}", row.group, row.kind));
    const std::string test = row.test, why = row.why;
    EXPECT_TRUE(!row.mutants.empty() || !test.empty() || !why.empty());
    for (const char* mutant : row.mutants) EXPECT_TRUE(IsMade(names, mutant)) << mutant;
    EXPECT_TRUE(test.empty() || Stands(test)) << test;
  }
}

}  // namespace
}  // namespace kvlift

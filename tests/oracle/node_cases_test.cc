// LIBS: oracle onnxio
// NEEDS: node_cases
// ONNX's official node tests against the oracle: every case of an operator that has a meaning there
// must give what was recorded.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <string>

#include "base/status.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "ir/types.h"
#include "onnxio/model/model.h"
#include "oracle/core/interpreter.h"

namespace kvlift::oracle {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBudget = int64_t{1} << 40;

absl::StatusOr<Value> Read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  onnx::TensorProto proto;
  if (!proto.ParseFromIstream(&file)) return absl::InvalidArgumentError(path.string());
  return Value::FromProto(proto, path.parent_path());
}

bool AllTensors(const onnx::GraphProto& graph) {
  for (const auto& info : graph.input()) {
    if (!info.type().has_tensor_type()) return false;
  }
  for (const auto& info : graph.output()) {
    if (!info.type().has_tensor_type()) return false;
  }
  return true;
}

double Tolerance(int32_t type) {
  if (type == onnx::TensorProto::BFLOAT16) return 0x1p-6;
  return type == onnx::TensorProto::FLOAT16 ? 0x1p-9 : 1e-3;
}

std::string Compare(const Value& found, const Value& wanted) {
  if (found.type() != wanted.type() || found.dims() != wanted.dims()) {
    return fmt::format("{} {}, {} {} expected", ElementTypeName(found.type()),
                       DimsText(found.dims()), ElementTypeName(wanted.type()),
                       DimsText(wanted.dims()));
  }
  for (int64_t i = 0; i < found.size(); ++i) {
    if (!found.real()) {
      if (found.integers()[i] == wanted.integers()[i]) continue;
      return fmt::format("element {} is {}, {} expected", i, found.integers()[i],
                         wanted.integers()[i]);
    }
    const double a = RoundTo(found.type(), found.reals().value[i]), b = wanted.reals().value[i];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (std::fabs(a - b) <= 1e-7 + Tolerance(found.type()) * std::fabs(b)) continue;
    return fmt::format("element {} is {}, {} expected", i, a, b);
  }
  return "";
}

// Unimplemented: no meaning.
absl::Status RunCase(const fs::path& folder) {
  KV_ASSIGN_OR_RETURN(const Model model, LoadModel((folder / "model.onnx").string()));
  if (!AllTensors(model.proto->graph())) return absl::UnimplementedError("no tensors");
  KV_ASSIGN_OR_RETURN(const Interpreter oracle, Interpreter::Create(model.proto, model.base_dir));
  if (!oracle.unknown().empty()) return absl::UnimplementedError(oracle.unknown().front());
  const fs::path data = folder / "test_data_set_0";
  Values inputs;
  for (int i = 0; i < model.proto->graph().input_size(); ++i) {
    KV_ASSIGN_OR_RETURN(inputs[model.proto->graph().input(i).name()],
                        Read(data / fmt::format("input_{}.pb", i)));
  }
  int64_t work = 0;
  KV_ASSIGN_OR_RETURN(const Values outputs, oracle.Run(inputs, kBudget, &work));
  for (int i = 0; i < model.proto->graph().output_size(); ++i) {
    KV_ASSIGN_OR_RETURN(const Value wanted, Read(data / fmt::format("output_{}.pb", i)));
    const std::string problem = Compare(outputs.at(model.proto->graph().output(i).name()), wanted);
    if (!problem.empty()) return absl::InternalError(fmt::format("output {}: {}", i, problem));
  }
  return absl::OkStatus();
}

TEST(OracleNodeCases, AllThatHaveMeaning) {
  const fs::path root = fs::path(KVLIFT_GENERATED_DIR) / "node_cases/node";
  ASSERT_TRUE(fs::is_directory(root)) << "the test node_cases writes them";
  int passed = 0;
  std::map<std::string, int> without;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    if (!fs::exists(entry.path() / "model.onnx")) continue;
    const absl::Status status = RunCase(entry.path());
    if (absl::IsUnimplemented(status)) {
      ++without[std::string(status.message())];
    } else if (!status.ok()) {
      ADD_FAILURE() << entry.path().filename().string() << ": " << status.message();
    }
    passed += status.ok() ? 1 : 0;
  }
  std::cout << passed << " passed; without meaning:\n";
  for (const auto& [what, count] : without) std::cout << "  " << count << " " << what << "\n";
  EXPECT_GT(passed, 900);
}

}  // namespace
}  // namespace kvlift::oracle

// LIBS: verify
// SRCS: support/verdict.cc
// The oracle beside the executor: steps are judged by computed bounds; a kernel that is wrong in
// the same way on both sides never gives "equal".
#include <cmath>
#include <memory>
#include <string>

#include "exec/kernels/common/kernel.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "support/verdict.h"
#include "verify/judge/verify.h"

namespace kvlift {
namespace {

using exec::KernelContext;
using exec::OpDef;

constexpr char kWeights[] = R"(
<float[4,8] table = {0.9,-1.2,0.3,1.7,-0.6,1.1,-1.9,0.4, -1.4,0.8,1.6,-0.2,1.3,-0.9,0.5,1.8,
   0.7,1.5,-1.1,0.6,-1.6,0.2,1.2,-0.8, 1.9,-0.3,0.1,-1.5,0.4,1.4,-0.7,-1.3},
 float[8,8] wk = {0.5,-0.7,0.9,0.1,-0.3,0.6,0.7,-0.4, -0.5,0.2,0.8,-0.6,0.7,0.4,-0.9,0.1,
   0.3,-0.8,0.2,0.6,-0.1,0.9,0.4,-0.5, 0.8,0.1,-0.6,0.3,0.5,-0.2,-0.7,0.9,
   -0.4,0.7,0.1,-0.9,0.6,0.3,0.2,-0.8, 0.6,-0.3,0.5,0.4,-0.7,0.8,-0.1,0.2,
   0.1,0.9,-0.4,-0.2,0.3,-0.6,0.8,0.5, -0.7,0.4,0.6,0.8,-0.5,-0.1,0.3,0.9},
 float scale = {0.3}, int64[1] one = {1},
 int64[4] split = {0, 0, 2, 4}, int64[3] flat = {0, 0, 8}>
)";

constexpr char kFront[] = R"(
  x = Gather (table, ids)
  k = MatMul (x, wk)
  [tanh] v = Tanh (k)
  k4 = Reshape (k, split)
  v4 = Reshape (v, split)
  q4 = Reshape (x, split)
  key = Transpose <perm = [0, 2, 1, 3]> (k4)
  value = Transpose <perm = [0, 2, 1, 3]> (v4)
  query = Transpose <perm = [0, 2, 1, 3]> (q4)
)";

std::string Before() {
  return std::string(R"(<ir_version: 10, opset_import: ["" : 24]>
g (int64[B,S] ids, float[B,2,P,4] pk, float[B,2,P,4] pv)
  => (float[B,S,8] logits, float[B,2,T,4] nk, float[B,2,T,4] nv))") +
         kWeights + "{" + kFront + R"(
  nk = Concat <axis = 2> (pk, key)
  nv = Concat <axis = 2> (pv, value)
  turned = Transpose <perm = [0, 1, 3, 2]> (nk)
  dots = MatMul (query, turned)
  scores = Mul (dots, scale)
  before = Shape <start = 2, end = 3> (pk)
  all = Shape <start = 2, end = 3> (nk)
  news = Shape <start = 1, end = 2> (ids)
  none = Constant <value_int = 0> ()
  step = Constant <value_int = 1> ()
  before0 = Squeeze (before)
  all0 = Squeeze (all)
  keys = Range (none, all0, step)
  rows = Range (before0, all0, step)
  rows1 = Unsqueeze (rows, one)
  hidden = Greater (keys, rows1)
  low = Constant <value_float = -3.4028235e38> ()
  masked = Where (hidden, low, scores)
  p = Softmax <axis = -1> (masked)
  y = MatMul (p, nv)
  y4 = Transpose <perm = [0, 2, 1, 3]> (y)
  logits = Reshape (y4, flat)
})";
}

std::string After() {
  return std::string(R"(<ir_version: 12, opset_import: ["" : 24]>
g (int64[B,S] ids, float[B,2,M,4] pk, float[B,2,M,4] pv, int64[B] at)
  => (float[B,S,8] logits, float[B,2,M,4] nk, float[B,2,M,4] nv))") +
         kWeights + "{" + kFront + R"(
  nk = TensorScatter <axis = 2> (pk, key, at)
  nv = TensorScatter <axis = 2> (pv, value, at)
  news = Shape <start = 1, end = 2> (ids)
  nonpad = Add (at, news)
  y = Attention <is_causal = 1, scale = 0.3> (query, nk, nv, , , , nonpad)
  y4 = Transpose <perm = [0, 2, 1, 3]> (y)
  logits = Reshape (y4, flat)
})";
}

Manifest PairRelation() {
  Manifest relation = RelationOf({{"pk", "nk", "BNSD", UpdateKind::kConcat, true},
                                  {"pv", "nv", "BNSD", UpdateKind::kConcat, true}},
                                 {"ids"}, {"logits"});
  AddControl(&relation);
  return relation;
}

// `name` is what the converted model calls its node Tanh.
VerifyReport RunPair(const std::string& name = "[tanh]") {
  return VerdictOn(Before(), With(After(), "[tanh]", name), PairRelation());
}

TEST(VerifyOracle, EveryStepIsJudgedByComputedBounds) {
  const VerifyReport report = RunPair();
  EXPECT_EQ(report.verdict, VerdictKind::kEqual) << Summary(report);
  EXPECT_GT(report.oracle.steps, 20);
  EXPECT_EQ(report.oracle.steps, report.oracle.steps_seen);
  EXPECT_TRUE(report.oracle.without_meaning.empty());
  EXPECT_GT(report.oracle.worst_ratio, 0);
  for (const OutputResult& output : report.outputs) {
    EXPECT_EQ(output.by_fixed_bound, 0) << output.name;
    EXPECT_GT(output.bitwise + output.by_bound, 0) << output.name;
    EXPECT_LE(output.ratio, 1) << output.name;
    if (output.name == "logits") continue;
    EXPECT_EQ(output.by_bound, 0) << output.name << " is made by equal nodes";
  }
}

// An executor with one wrong kernel: what the right one gives, spoilt.
using Spoil = void (*)(KernelContext&);
exec::KernelFn right = nullptr;
Spoil spoil = nullptr;

absl::Status Wrong(KernelContext& context) {
  const absl::Status status = right(context);
  if (status.ok()) spoil(context);
  return status;
}

VerifyReport RunWithWrong(const std::string& op, Spoil how) {
  OpDef def = *exec::FindOp("", op, 24);
  right = def.compute;
  spoil = how;
  def.compute = Wrong;
  const exec::OpReplacementForTest broken(def);
  return RunPair();
}

void ExpectOracleFinding(const VerifyReport& report, const std::string& what) {
  EXPECT_EQ(report.verdict, VerdictKind::kInconclusive) << what << ": " << Summary(report);
  EXPECT_EQ(report.reason.substr(0, 5), "KV420") << what << ": " << report.reason;
  EXPECT_GT(report.oracle.disagreements, 0) << what;
}

// Kernels that both models use, each in turn, off by one part in ten thousand.
TEST(VerifyOracle, AKernelWrongOnBothSidesIsFound) {
  for (const char* op : {"Gather", "MatMul", "Tanh"}) {
    const VerifyReport report = RunWithWrong(op, [](KernelContext& c) {
      const bool scores = c.inputs.size() == 2 && c.inputs[1].shape.size() == 4;
      if (c.outputs[0].type != onnx::TensorProto::FLOAT || scores) return;
      for (float& x : c.outputs[0].span<float>()) x *= 1.0001F;
    });
    ExpectOracleFinding(report, op);
  }
}

TEST(VerifyOracle, ARoundingTooManyIsFound) {
  const VerifyReport report = RunWithWrong("Tanh", [](KernelContext& c) {
    for (float& x : c.outputs[0].span<float>()) {
      x = exec::HalfToFloat(exec::FloatToHalf(x));
    }
  });
  ExpectOracleFinding(report, "Tanh in half precision");
}

// Equal nodes, equal operands, one last bit: within every bound, and yet a fault.
TEST(VerifyOracle, ASharedNodeThatGivesOtherBitsIsFound) {
  OpDef def = *exec::FindOp("", "Tanh", 24);
  right = def.compute;
  spoil = [](KernelContext& c) {
    if (c.node.name() != "other") return;
    for (float& x : c.outputs[0].span<float>()) x = std::nextafter(x, 2.0F);
  };
  def.compute = Wrong;
  const exec::OpReplacementForTest broken(def);
  const VerifyReport report = RunPair("[other]");
  EXPECT_EQ(report.verdict, VerdictKind::kInconclusive) << Summary(report);
  EXPECT_EQ(report.reason.substr(0, 5), "KV421") << report.reason;
  EXPECT_EQ(report.rounding.broken, "other");
}

TEST(VerifyOracle, DifferencesBeginAtTheAttention) {
  const VerifyReport report = RunWithWrong("Attention", [](KernelContext& c) {
    for (float& x : c.outputs[0].span<float>()) x = std::nextafter(x, 2.0F);
  });
  EXPECT_EQ(report.verdict, VerdictKind::kEqual) << Summary(report);
  const RoundingReport& rounding = report.rounding;
  EXPECT_EQ(rounding.first_operator, "Attention");
  EXPECT_GE(rounding.unchanged, 9);
  EXPECT_GE(rounding.bitwise, rounding.unchanged);
  EXPECT_EQ(rounding.broken, "");
}

// Wrong on one side only.
TEST(VerifyOracle, AKernelWrongOnOneSideIsNeverEqual) {
  for (const char* op : {"Softmax", "Attention", "TensorScatter", "Concat", "Mul", "Transpose"}) {
    const VerifyReport report = RunWithWrong(op, [](KernelContext& c) {
      if (c.outputs[0].type == onnx::TensorProto::FLOAT && c.outputs[0].size() > 0) {
        c.outputs[0].as<float>()[0] *= 1.01F;
      }
    });
    EXPECT_NE(report.verdict, VerdictKind::kEqual) << op << ": " << Summary(report);
  }
}

// Comparisons that see too little: none of them ever says "equal".
VerifyReport RunWithComparer(CompareFn compare) {
  VerifyOptions options;
  options.compare = compare;
  Model a, b;
  a.proto = std::make_shared<const onnx::ModelProto>(*ParseModelText(Before()));
  b.proto = std::make_shared<const onnx::ModelProto>(*ParseModelText(After()));
  const auto report = Verify(a, b, PairRelation(), options);
  EXPECT_TRUE(report.ok()) << report.status();
  return *report;
}

void ExpectControlMissed(CompareFn compare, const std::string& what) {
  const VerifyReport report = RunWithComparer(compare);
  EXPECT_EQ(report.verdict, VerdictKind::kInconclusive) << what << ": " << Summary(report);
  EXPECT_EQ(report.reason.substr(0, 5), "KV407") << what << ": " << report.reason;
}

exec::Tensor Times(const exec::View& view, double factor) {
  exec::Tensor result(view.type, view.shape);
  for (int64_t i = 0; i < view.size(); ++i)
    result.span<double>()[i] = factor * view.as<double>()[i];
  return result;
}

exec::Tensor Sizes(const exec::View& view) {
  exec::Tensor result(view.type, view.shape);
  for (int64_t i = 0; i < view.size(); ++i) {
    result.span<float>()[i] = std::fabs(view.as<float>()[i]);
  }
  return result;
}

TEST(VerifyOracle, AComparerThatSeesTooLittleIsFound) {
  EXPECT_EQ(RunWithComparer(Compare).verdict, VerdictKind::kEqual);
  ExpectControlMissed(
      [](const exec::View& a, const exec::View& b, int nodes, const exec::View& slack) {
        Comparison c = Compare(a, b, nodes, slack);
        c.difference.reset();
        return c;
      },
      "blind");
  ExpectControlMissed(
      [](const exec::View& a, const exec::View& b, int nodes, const exec::View& slack) {
        if (slack.absent()) return Compare(a, b, nodes, slack);
        return Compare(a, b, nodes, Times(slack, 1000).view());
      },
      "a thousand bounds");
  ExpectControlMissed(
      [](const exec::View& a, const exec::View& b, int nodes, const exec::View& slack) {
        if (a.type != onnx::TensorProto::FLOAT) return Compare(a, b, nodes, slack);
        return Compare(Sizes(a).view(), Sizes(b).view(), nodes, slack);
      },
      "sizes only");
  ExpectControlMissed(
      [](const exec::View& a, const exec::View& b, int nodes, const exec::View& slack) {
        Comparison c = Compare(a, b, nodes, slack);
        if (c.difference && !c.difference->element.empty() && c.difference->element[0] > 0) {
          c.difference.reset();
        }
        return c;
      },
      "the first sequence only");
}

}  // namespace
}  // namespace kvlift

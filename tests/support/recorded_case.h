// Recorded cases of the executor: CASE/model.onnx and CASE/test_data_set_0/{input,output}_K.pb, and
// models that hold their inputs and results.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "exec/session/session.h"

namespace kvlift::exec {

// Returns the folders of `root` that hold a model, sorted.
std::vector<std::filesystem::path> CasesOf(const std::filesystem::path& root);

// Returns "" if the model's outputs are the recorded ones, else what is wrong.
std::string RunCase(const std::filesystem::path& folder, CompileOptions options = {});

// Returns "" if the model gives what it expects: its inputs have defaults, and initializers
// "expected/OUTPUT" hold the results (NaN where they are not defined). Else returns what is wrong.
std::string RunRecorded(const onnx::ModelProto& model, Order order);

// Returns "" if the tensors are equal within the absolute tolerance, else what differs. Integers
// and bools must be equal. `nan_is_any`: a wanted NaN matches anything.
std::string Compare(const Tensor& found, const Tensor& wanted, double absolute,
                    bool nan_is_any = false);

}  // namespace kvlift::exec

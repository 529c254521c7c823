// Recorded cases of the executor: CASE/model.onnx and CASE/test_data_set_0/{input,output}_K.pb.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "exec/session.h"

namespace kvlift::exec {

// The folders of `root` that hold a model, sorted.
std::vector<std::filesystem::path> CasesOf(const std::filesystem::path& root);

// "" if the model gives what was recorded, else what is wrong.
std::string RunCase(const std::filesystem::path& folder, CompileOptions options = {});

// "" if equal within the tolerance; integers and bools must be equal.
std::string Compare(const Tensor& found, const Tensor& wanted, double absolute,
                    bool nan_is_any = false);

}  // namespace kvlift::exec

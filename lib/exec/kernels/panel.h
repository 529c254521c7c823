// Products with weights that were rearranged once into panels: 32 columns wide, k long, so that a
// product reads them in order. Sums have the canonical order of gemm_isa.h, so a product has the
// same bits with and without panels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "exec/kernel.h"
#include "exec/kernels/gemm_isa.h"
#include "exec/kernels/scratch.h"

namespace kvlift::exec {

// Weights b[k, n] that can be multiplied panel by panel.
class PanelMatrix : public Prepacked {
 public:
  static constexpr int kWidth = VectorOps<float>::kPanel;

  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  int64_t panels() const { return (n_ + kWidth - 1) / kWidth; }
  int width(int64_t panel) const;

  virtual int64_t panel_bytes() const = 0;
  // Most rows that Stream takes.
  virtual int stream_rows() const = 0;
  // Stream is fastest for a multiple of so many panels.
  virtual int64_t panels_at_once() const { return 1; }
  // c[m, columns of `count` panels] = a * panels, all of k; a is [k][m], c begins at the first
  // panel's column.
  virtual void Stream(int m, int64_t first, int64_t count, const float* a, float* c,
                      int64_t ldc) const = 0;
  // Rows [k0, k0 + k) of a panel as floats [k][kWidth]: in place, or written to `room`.
  virtual const float* Expand(int64_t panel, int64_t k0, int64_t k, float* room) const = 0;
  // Where the weights of row k0 of a panel begin.
  virtual const std::byte* Address(int64_t panel, int64_t k0) const = 0;

 protected:
  PanelMatrix(int64_t k, int64_t n) : k_(k), n_(n) {}

 private:
  int64_t k_, n_;
};

// Weights as the model has them, of 32-bit or 16-bit floats (kNative: float).
class PackedMatrix final : public PanelMatrix {
 public:
  // Element (p, j) of b is at p * b_k + j * b_column; one of the strides is 1. Null without memory.
  static std::shared_ptr<const PackedMatrix> Make(const void* b, Storage storage, int64_t k,
                                                  int64_t n, int64_t b_k, int64_t b_column,
                                                  int threads);

  int64_t panel_bytes() const override;
  int stream_rows() const override;
  void Stream(int m, int64_t first, int64_t count, const float* a, float* c,
              int64_t ldc) const override;
  const float* Expand(int64_t panel, int64_t k0, int64_t k, float* room) const override;
  const std::byte* Address(int64_t panel, int64_t k0) const override;

 private:
  PackedMatrix(Storage storage, int64_t k, int64_t n) : PanelMatrix(k, n), storage_(storage) {}

  Storage storage_;
  std::shared_ptr<void> data_;
};

// A 2-D constant operand as it stands in memory, [k, n] or if `transposed` [n, k]. Null if its type
// has no panels, or if they would be mostly padding.
std::shared_ptr<const Prepacked> PackMatrix(const View& b, bool transposed, int threads);

// c = alpha * a * b + beta * bias, each step rounded; without a bias alpha * a * b.
struct PanelProduct {
  const PanelMatrix* b = nullptr;
  int64_t m = 0;
  const void* a = nullptr;  // rows of k elements of `storage`, one after the other
  void* c = nullptr;        // rows of n elements of `storage`
  Storage storage = Storage::kNative;
  float alpha = 1, beta = 1;
  const void* bias = nullptr;  // of `storage`
  int64_t bias_row = 0, bias_column = 0;
  const void* added = nullptr;  // as c: added to the rounded result
};

// How a float, float16 or bfloat16 tensor is stored.
std::optional<Storage> StorageOfType(int32_t type);

// The rows of a as floats, in `scratch` if they are none.
const float* FloatRows(const PanelProduct& product, ScratchScope& scratch);
// Completes sums c[rows][columns] (rows ldc apart) and writes them to their place in the result.
void FinishColumns(const PanelProduct& product, int64_t row, int64_t rows, int64_t column,
                   int64_t columns, float* c, int64_t ldc);

void MultiplyPanels(const PanelProduct& product, int threads);

}  // namespace kvlift::exec

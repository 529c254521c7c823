// Products with constant weights that are rearranged into panels, 32 columns wide and k long, so
// that a product reads them in order. Sums have the canonical order of gemm_isa.h, so a product has
// the same bits with and without panels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "exec/kernels/common/gemm_isa.h"
#include "exec/kernels/common/kernel.h"
#include "exec/memory/scratch.h"

namespace kvlift::exec {

// Weights b[k, n] that are multiplied panel by panel.
class PanelMatrix : public Prepacked {
 public:
  static constexpr int kWidth = VectorOps<float>::kPanel;

  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  int64_t panels() const { return (n_ + kWidth - 1) / kWidth; }
  int width(int64_t panel) const;

  virtual int64_t panel_bytes() const = 0;
  // Returns the largest number of rows that Stream takes.
  virtual int stream_rows() const = 0;
  // Returns the number of panels of which Stream should be given a multiple, for speed.
  virtual int64_t panels_at_once() const { return 1; }
  // Sets c[m, columns of `count` panels] to a * panels over all of k. a is [k][m]; c begins at the
  // column of the first panel.
  virtual void Stream(int m, int64_t first, int64_t count, const float* a, float* c,
                      int64_t ldc) const = 0;
  // Returns rows [k0, k0 + k) of a panel as floats [k][kWidth], in place or written to `room`.
  virtual const float* Expand(int64_t panel, int64_t k0, int64_t k, float* room) const = 0;
  // Returns where the weights of row k0 of a panel begin.
  virtual const std::byte* Address(int64_t panel, int64_t k0) const = 0;

 protected:
  PanelMatrix(int64_t k, int64_t n) : k_(k), n_(n) {}

 private:
  int64_t k_, n_;
};

// Weights of 32-bit or 16-bit floats, as in the model (kNative: float).
class PackedMatrix final : public PanelMatrix {
 public:
  // Element (p, j) of b is at p * b_k + j * b_column; one of the strides is 1. Returns null if
  // there is no memory.
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

// Packs a matrix [k, n] or, if `transposed`, [n, k]. Returns null if its type has no panels, its
// columns are too few, or there is no memory.
std::shared_ptr<const Prepacked> PackMatrix(const View& b, bool transposed, int threads);

// Computes c = alpha * a * b + beta * bias, each step rounded; without bias c = alpha * a * b.
struct PanelProduct {
  const PanelMatrix* b = nullptr;
  int64_t m = 0;
  const void* a = nullptr;  // [m, k], elements of `storage`
  void* c = nullptr;        // [m, n], elements of `storage`
  Storage storage = Storage::kNative;
  float alpha = 1, beta = 1;
  const void* bias = nullptr;  // elements of `storage`; null: no bias
  int64_t bias_row = 0, bias_column = 0;
  const void* added = nullptr;  // as c: added to the rounded result; null: nothing is added
};

// Returns how a float, float16 or bfloat16 tensor is stored; nullopt for other types.
std::optional<Storage> StorageOfType(int32_t type);

// Returns the rows of a as floats, in `scratch` if they have another type.
const float* FloatRows(const PanelProduct& product, ScratchScope& scratch);
// Scales sums c[rows][columns] (rows ldc apart), adds bias and `added`, and writes them to their
// place in the result.
void FinishColumns(const PanelProduct& product, int64_t row, int64_t rows, int64_t column,
                   int64_t columns, float* c, int64_t ldc);

void MultiplyPanels(const PanelProduct& product, int threads);

}  // namespace kvlift::exec

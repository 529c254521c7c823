// Weights of MatMulNBits in panels, with the codes of the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "exec/kernels/common/bits_isa.h"
#include "exec/kernels/products/panel.h"

namespace kvlift::exec {

// The operands of MatMulNBits. Source: ONNX Runtime, com.microsoft MatMulNBits.
struct BitsSource {
  int64_t n = 0, k = 0, block = 0;
  int bits = 4;
  const uint8_t* codes = nullptr;  // [n][blocks][block * bits / 8]
  const void* scales = nullptr;    // [n][blocks], elements of `storage`
  Storage storage = Storage::kNative;
  const uint8_t* packed_zeros = nullptr;  // [n][ceil(blocks * bits / 8)]; null: see `zeros`
  const void* zeros = nullptr;  // [n][blocks] of `storage`; null: the zero point is 2^(bits - 1)
};

class PackedBits final : public PanelMatrix {
 public:
  // Returns null if there is no memory, or if the kernels cannot take these sizes.
  static std::shared_ptr<const PackedBits> Make(const BitsSource& source, bool integer_dot,
                                                int threads);

  int64_t panel_bytes() const override { return blocks_ * layout_.block_bytes; }
  int stream_rows() const override { return BitsOps::kMaxRows; }
  int64_t panels_at_once() const override { return 2; }
  void Stream(int m, int64_t first, int64_t count, const float* a, float* c,
              int64_t ldc) const override;
  const float* Expand(int64_t panel, int64_t k0, int64_t k, float* room) const override;
  const std::byte* Address(int64_t panel, int64_t k0) const override;

  // Returns true if rows of a are rounded to int8 codes, with a scale for each block of k.
  bool integer_dot() const { return integer_dot_; }
  const BitsLayout& layout() const { return layout_; }
  int64_t blocks() const { return blocks_; }

 private:
  PackedBits(int64_t k, int64_t n) : PanelMatrix(k, n) {}
  void PackPanel(const BitsSource& source, int64_t panel, std::byte* to) const;

  BitsLayout layout_;
  int64_t blocks_ = 0;
  bool integer_dot_ = false;
  std::shared_ptr<void> data_;
};

// Does what MultiplyPanels does, for weights with integer_dot(): rows of a become int8 codes.
void MultiplyBitsDot(const PanelProduct& product, int threads);

}  // namespace kvlift::exec

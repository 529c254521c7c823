// The attention of the com.microsoft operators by the grouped kernels of the fast order.
#include <algorithm>

#include "exec/kernels/attention/attention_grouped.h"
#include "exec/kernels/fused/fused_attention.h"

namespace kvlift::exec {
namespace {

class FusedMask : public KeyMask {
 public:
  explicit FusedMask(const FusedHeads<float>& heads) : heads_(heads) {}

  KeyRange Visible(int64_t b, int64_t s) const override { return VisibleSlots(heads_, b, s); }

  void Apply(int64_t b, int64_t h, int64_t s, int64_t begin, int64_t end, float* x) const override {
    const AttentionKernels& ops = AttentionIsa();
    const FusedHeads<float>& p = heads_;
    if (p.bias != nullptr) {
      ops.add_bias(p.bias + b * p.bias_b + h * p.bias_h + s * p.bias_keys + begin, end - begin, x);
    }
    if (p.mask != nullptr) {
      ops.add_bias(p.mask + b * p.mask_b + s * p.mask_s + begin, end - begin, x);
    }
  }

 private:
  const FusedHeads<float>& heads_;
};

}  // namespace

void RunFusedGrouped(const FusedHeads<float>& p, const StoredOperand& k, const StoredOperand& v,
                     const StoredResult& y, int threads) {
  const FusedMask mask(p);
  GroupedHeads heads;
  heads.B = p.B;
  heads.N = p.N;
  heads.Nk = p.Nk;
  heads.S = p.S;
  heads.D = p.D;
  heads.Dv = p.Dv;
  heads.q = {p.q, Storage::kNative, {p.N * p.S * p.D, p.S * p.D, p.D}};
  heads.k = {k.data, k.storage, {p.Nk * p.M * p.D, p.M * p.D, p.D}};
  heads.v = {v.data, v.storage, {p.Nk * p.M * p.Dv, p.M * p.Dv, p.Dv}};
  heads.y = y.data;
  heads.y_storage = y.storage;
  heads.y_layout = {p.S * p.N * p.Dv, p.Dv, p.N * p.Dv};
  heads.scale = p.scale;
  heads.softcap = p.softcap;
  heads.sink = p.sink;
  heads.mask = &mask;
  RunGrouped(heads, threads);
}

}  // namespace kvlift::exec

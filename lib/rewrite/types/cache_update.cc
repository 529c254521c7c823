#include "rewrite/types/cache_update.h"

#include "base/overloaded.h"

namespace kvlift {

bool CacheUpdate::grows() const {
  return std::visit(
      Overloaded{[](const AppendAll&) { return true; }, [](const KeepLast&) { return true; },
                 [](const WriteAt&) { return false; }, [](const WriteAround&) { return false; },
                 [](const Fifo&) { return false; }},
      how);
}

std::optional<int64_t> CacheUpdate::window() const {
  using Window = std::optional<int64_t>;
  return std::visit(
      Overloaded{[](const AppendAll&) { return Window(); },
                 [](const KeepLast& last) { return Window(last.window); },
                 [](const WriteAt&) { return Window(); },
                 [](const WriteAround&) { return Window(); }, [](const Fifo&) { return Window(); }},
      how);
}

sym::Expr CacheUpdate::write_index(sym::Pool& pool) const {
  return std::visit(Overloaded{[](const AppendAll& all) { return all.past_length; },
                               [](const KeepLast& last) { return last.past_length; },
                               [](const WriteAt& write) { return write.start; },
                               [](const WriteAround& write) { return write.start; },
                               [&](const Fifo&) { return pool.Dim(PastSymbol()); }},
                    how);
}

ValueId CacheUpdate::read_by_attention() const {
  return std::visit(Overloaded{[&](const AppendAll&) { return pair.present; },
                               [](const KeepLast& last) { return last.read_by_attention; },
                               [&](const WriteAt&) { return pair.present; },
                               [&](const WriteAround&) { return pair.present; },
                               [&](const Fifo&) { return pair.present; }},
                    how);
}

bool CacheUpdate::writes_some_sequences() const {
  return std::visit(
      Overloaded{[](const AppendAll&) { return false; }, [](const KeepLast&) { return false; },
                 [](const WriteAt& write) { return write.writes_some_sequences; },
                 [](const WriteAround&) { return false; }, [](const Fifo&) { return false; }},
      how);
}

namespace {

UpdateKind KindOf(WriteSpelling spelling) {
  switch (spelling) {
    case WriteSpelling::kScatter:
      return UpdateKind::kScatter;
    case WriteSpelling::kSplice:
      return UpdateKind::kSplice;
    case WriteSpelling::kSelect:
      return UpdateKind::kSelect;
    case WriteSpelling::kBlend:
      return UpdateKind::kBlend;
  }
  return UpdateKind::kScatter;
}

}  // namespace

UpdateKind CacheUpdate::kind() const {
  return std::visit(Overloaded{[](const AppendAll&) { return UpdateKind::kConcat; },
                               [](const KeepLast&) { return UpdateKind::kWindow; },
                               [](const WriteAt& write) { return KindOf(write.spelling); },
                               [](const WriteAround&) { return UpdateKind::kScatter; },
                               [](const Fifo&) { return UpdateKind::kShift; }},
                    how);
}

}  // namespace kvlift

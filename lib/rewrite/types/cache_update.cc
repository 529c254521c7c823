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
  return std::visit(Overloaded{[](const AppendAll& all) {
                                 return all.sliding ? UpdateKind::kSliding : UpdateKind::kConcat;
                               },
                               [](const KeepLast&) { return UpdateKind::kWindow; },
                               [](const WriteAt& write) { return KindOf(write.spelling); },
                               [](const WriteAround&) { return UpdateKind::kScatter; },
                               [](const Fifo&) { return UpdateKind::kShift; }},
                    how);
}

std::optional<std::pair<sym::Expr, sym::Expr>> CacheUpdate::rows_of_past(sym::Pool& pool) const {
  using Rows = std::optional<std::pair<sym::Expr, sym::Expr>>;
  const sym::Expr past = pool.Dim(PastSymbol());
  return std::visit(
      Overloaded{[&](const AppendAll& all) {
                   return Rows({all.past_length, past});
                 },
                 [&](const KeepLast& last) {
                   const sym::Expr window = pool.Integer(last.window);
                   return Rows({last.past_length, pool.Min(past, window, {})});
                 },
                 [](const WriteAt&) { return Rows(); }, [](const WriteAround&) { return Rows(); },
                 [](const Fifo&) { return Rows(); }},
      how);
}

sym::Expr CacheUpdate::first_new_row(sym::Pool& pool, sym::Expr slots) const {
  const auto written = [&] { return write_index(pool); };
  return std::visit(Overloaded{[&](const AppendAll&) { return written(); },
                               [&](const KeepLast&) { return written(); },
                               [&](const WriteAt&) { return written(); },
                               [&](const WriteAround&) { return written(); },
                               [&](const Fifo&) { return pool.Sub(slots, new_length); }},
                    how);
}

bool CacheUpdate::has_indices_behind_front(sym::Pool& pool) const {
  const size_t batch = layout.find('B');
  if (grows() || batch == 0 || batch == std::string::npos) return false;
  return sym::ContainsIndex(write_index(pool), static_cast<int>(batch));
}

std::optional<std::string_view> CacheUpdate::needs_one_index() const {
  using Why = std::optional<std::string_view>;
  if (reordered_past != nullptr) return "takes its sequences in another order";
  return std::visit(
      Overloaded{[&](const AppendAll&) {
                   return layout[0] == 'B' ? Why() : Why("does not have the batch in front");
                 },
                 [](const KeepLast&) { return Why("keeps a window"); },
                 [](const WriteAt&) { return Why(); }, [](const WriteAround&) { return Why(); },
                 [](const Fifo&) { return Why(); }},
      how);
}

std::optional<std::string_view> CacheUpdate::needs_views() const {
  if (window()) return "keeps a window";
  return std::nullopt;
}

bool CacheUpdate::may_have_other_layout() const {
  if (reordered_past != nullptr) return false;
  return std::visit(
      Overloaded{[](const AppendAll&) { return true; }, [](const KeepLast&) { return false; },
                 [](const WriteAt&) { return true; }, [](const WriteAround&) { return true; },
                 [](const Fifo&) { return false; }},
      how);
}

std::string_view CacheUpdate::order_of_rows() const {
  using Words = std::string_view;
  return std::visit(Overloaded{[](const AppendAll&) { return Words("linear"); },
                               [](const KeepLast&) { return Words("linear"); },
                               [](const WriteAt&) { return Words("linear"); },
                               [](const WriteAround&) { return Words("wrap around"); },
                               [](const Fifo&) { return Words("first in, first out"); }},
                    how);
}

}  // namespace kvlift

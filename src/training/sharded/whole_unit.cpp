// SPDX-License-Identifier: Apache-2.0
#include "training/sharded/whole_unit.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <set>
#include <span>
#include <vector>

#include "kolo/collectives.hpp"
#include "kolo/error.hpp"

namespace kolo::internal {

/// A pending gather. The session writes to the whole parameters until `done`.
struct WholeUnit::Gather {
  std::string operation;
  std::vector<std::int64_t> elements{};  // of each whole parameter
  Future<std::vector<std::vector<std::int64_t>>> done{};

  [[nodiscard]] std::vector<int> joined(const std::vector<std::vector<std::int64_t>>& rows,
                                        const std::vector<int>& members) const {
    std::set<int> ranks;
    const auto count = static_cast<int>(members.size());
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t index = 0; index < rows[i].size(); ++index)
        if (rows[i][index] != reducescatter_rows(elements[i], static_cast<int>(index), count))
          ranks.insert(members[index]);
    return {ranks.begin(), ranks.end()};
  }
};

WholeUnit::WholeUnit(UnitMemory& memory, ProcessSet set, std::string subject)
    : memory_(&memory), set_(std::move(set)), subject_(std::move(subject)) {}
WholeUnit::WholeUnit(WholeUnit&&) noexcept = default;
WholeUnit& WholeUnit::operator=(WholeUnit&&) noexcept = default;
WholeUnit::~WholeUnit() = default;

bool WholeUnit::start(const std::string& operation) {
  const std::int64_t now = memory_->version();
  if (gather_ && version_ == now) return false;
  if (gather_) finish();
  if (is_whole_ && version_ == now) return false;
  if (!is_allocated_) memory_->allocate();
  is_allocated_ = true;
  is_whole_ = false;
  version_ = now;
  auto gather = std::make_unique<Gather>(Gather{.operation = operation});
  gather->elements = memory_->elements();
  if (gather->elements.empty() || memory_->is_undivided()) {
    is_whole_ = true;
    return false;
  }
  const std::vector<ConstTensorView> shards = memory_->shards();
  const std::vector<void*> places = memory_->places();
  std::vector<Allocator> allocators;
  // A rank that has joined sends nothing, so what the others send lies elsewhere in the same place.
  for (void* const place : places)
    allocators.emplace_back([place](std::span<const std::int64_t>) { return place; });
  gather->done =
      grouped_allgather_async(shards, allocators, {.name = operation, .process_set = set_});
  gather_ = std::move(gather);
  return true;
}

bool WholeUnit::finish() {
  if (!gather_) return false;
  const bool was_late = !gather_->done.ready();
  const std::unique_ptr<Gather> gather = std::move(gather_);
  const std::vector<std::vector<std::int64_t>> rows = gather->done.get();
  memory_->gathered();
  const std::vector<int> joined = gather->joined(rows, set_.ranks());
  if (!joined.empty())
    throw Mismatch(fmt::format("{}: every rank has a shard of each parameter, but these have "
                               "called join(): {}. A rank without data calls take_part() instead",
                               subject_, fmt::join(joined, ", ")),
                   gather->operation, joined);
  is_whole_ = true;
  return was_late;
}

void WholeUnit::free() noexcept {
  gather_.reset();
  if (is_allocated_) {
    memory_->gathered();
    memory_->free();
  }
  is_allocated_ = false;
  is_whole_ = false;
}

}  // namespace kolo::internal

// SPDX-License-Identifier: Apache-2.0
#include "session/engine/work_in_progress.hpp"

#include <fmt/format.h>

#include "base/dtype.hpp"
#include "negotiation/stall/explain.hpp"

namespace kolo::internal::session {

std::string describe(const RunningBatch& batch) {
  const detail::Operation& first = *batch.operations.front();
  double bytes = 0.0;
  for (const detail::Operation* operation : batch.operations)
    for (const backend::BatchTensor& member : operation->members())
      bytes += static_cast<double>(member.elements()) * static_cast<double>(size_of(member.dtype));
  const std::size_t others = batch.operations.size() - 1;
  return fmt::format("batch {} ({}{}{})", batch.sequence,
                     negotiation::operation_in_words(first.descriptor().type, first.key()),
                     others == 0 ? "" : fmt::format(" and {} more", others),
                     bytes > 0.0 ? ", " + diagnostics::in_bytes(bytes) : "");
}

negotiation::Ticket WorkInProgress::add(detail::Operation* operation, TimePoint now) {
  if (free_tickets_.empty()) {
    negotiating_.push_back({operation, now});
    return negotiating_.size() - 1;
  }
  const negotiation::Ticket ticket = free_tickets_.back();
  free_tickets_.pop_back();
  negotiating_[ticket] = {operation, now};
  return ticket;
}

diagnostics::Recorder::Pending WorkInProgress::pending() const {
  diagnostics::Recorder::Pending all;
  for (const auto& [operation, since] : negotiating_)
    if (operation != nullptr) all.push_back({operation->tag(), &operation->descriptor()});
  for (const RunningBatch& batch : running_)
    for (const detail::Operation* operation : batch.operations)
      all.push_back({operation->tag(), &operation->descriptor(), true, batch.sequence});
  return all;
}

}  // namespace kolo::internal::session

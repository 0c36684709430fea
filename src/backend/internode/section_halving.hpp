// SPDX-License-Identifier: Apache-2.0
// Recursive halving for reducescatters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/internode/placement.hpp"
#include "backend/internode/reduction.hpp"
#include "backend/mpi/exchange.hpp"
#include "reduction/reduce.hpp"

namespace kolo::internal::backend::internode {

/// Combines a section for each of the owners: each has an input for all sections, and gets its own
/// section, combined in the order of `combine_groups`. In the step of a factor f, groups of f
/// owners divide their sections among them. So 512 owners send 9 messages each instead of 511.
///
/// The network accesses only memory of the exchange, which keeps it if this object ends
/// prematurely.
class SectionHalving {
 public:
  struct Task {
    mpi::Exchange& exchange;
    const Owners& owners;
    int lane;
    std::int64_t elements;             // the length of a section
    reduction::Arithmetic arithmetic;  // without a postscale and a divisor
  };

  /// The exchange and the owners must outlive this object.
  explicit SectionHalving(const Task& task);
  SectionHalving(const SectionHalving&) = delete;
  SectionHalving& operator=(const SectionHalving&) = delete;

  /// Memory for this host's input for the owner at this place.
  [[nodiscard]] std::byte* section(int owner) const;
  /// Starts sending. The inputs must be in place.
  void send() { send_parts(steps_.front()); }
  /// True once only the last combination is left, which the caller makes.
  [[nodiscard]] bool advance();
  /// Its inputs. The first one may be overwritten.
  [[nodiscard]] const std::vector<std::byte*>& last_inputs() const { return last_inputs_; }
  [[nodiscard]] bool has_sent_all() const { return sending_ == 0; }
  /// Call it when the last combination was made and all was sent.
  void give_back();

 private:
  struct Step {
    StepGroup group{};
    int begin = 0;                  // the first section that the group divides
    int part = 1;                   // the number of sections of each of the group
    std::byte* versions = nullptr;  // the other owners' versions of this owner's part
    int receiving = 0;
  };

  [[nodiscard]] std::int64_t bytes_of(int sections) const;
  [[nodiscard]] std::byte* part_of(const Step& step, int digit) const;
  void send_parts(const Step& step);
  void combine_part(const Step& step);

  const Task task_;
  std::vector<Step> steps_{};
  std::byte* sections_;  // in the order in which steps divide them
  std::size_t step_ = 0;
  int sending_ = 0;
  std::vector<std::byte*> last_inputs_{};
};

}  // namespace kolo::internal::backend::internode

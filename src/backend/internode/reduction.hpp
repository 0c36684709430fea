// SPDX-License-Identifier: Apache-2.0
// The reduction of one slice between hosts: the choice of an algorithm, and the order in which all
// algorithms combine hosts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/batch.hpp"
#include "backend/internode/placement.hpp"
#include "backend/mpi/exchange.hpp"
#include "kolo/types.hpp"
#include "reduction/reduce.hpp"

namespace kolo::internal::backend::internode {

/// All algorithms combine the hosts in the same order and give the same bits.
enum class InterNodeAlgorithm : std::uint8_t {
  whole,     ///< Each owner sends its input to all others: one message time. For few owners.
  direct,    ///< Each owner reduces a section for all: two message times, sent to all at once.
  doubling,  ///< Each owner exchanges everything in log2(owners) steps.
  halving,   ///< Each owner exchanges ever shorter sections, and then the results in reverse.
};

/// With more owners, messages to all at once take longer than a few messages in sequence.
inline constexpr int max_owners_at_once = 8;

/// The algorithm for this number of owners, at least two, and this number of elements. `wire`: the
/// type of the results.
[[nodiscard]] InterNodeAlgorithm select_algorithm(int owners, std::int64_t elements, DType wire);

/// The prime factors of the number of hosts, the smallest first. They give the order in which hosts
/// are combined, which depends on the number of hosts only. So sums have the same bits whatever the
/// algorithm, the length of the tensor and the batch. Neighbors are combined in groups of the first
/// factor, then the groups in groups of the second, and so on: four hosts as (0 + 1) + (2 + 3).
[[nodiscard]] std::vector<int> factors_of(int hosts);

/// Groups of more than this are combined in pairs, as a tree: else each of the group would have to
/// send its data to all others.
inline constexpr int max_factor = 7;

/// The number of pairs of neighbors, starting with the first input, that such a group combines in
/// its next step. The first step combines just enough pairs to leave a power of two: of 11 inputs
/// three pairs, which leaves 8. Later steps combine all inputs in pairs.
[[nodiscard]] int pairs_of(int inputs);

/// Combines a group until one combination remains, and returns the inputs of that. Calls
/// `combine(inputs, output)`, where the output is one of the inputs. All inputs but `kept` may be
/// overwritten.
template <typename Combine>
[[nodiscard]] std::vector<std::byte*> combine_group(std::vector<std::byte*> inputs,
                                                    const std::byte* kept, Combine combine) {
  if (std::ssize(inputs) <= max_factor) return inputs;
  while (inputs.size() > 2) {
    const std::ptrdiff_t pairs = pairs_of(static_cast<int>(inputs.size()));
    auto next = inputs.begin();
    for (auto pair = inputs.begin(); pair != inputs.begin() + 2 * pairs; pair += 2) {
      std::byte* const output = pair[pair[0] == kept ? 1 : 0];
      combine(std::vector<const std::byte*>{pair[0], pair[1]}, output);
      *next++ = output;
    }
    inputs.erase(next, next + pairs);
  }
  return inputs;
}

/// Combines the inputs of all hosts until one combination remains, as `combine_group` does.
template <typename Combine>
[[nodiscard]] std::vector<const std::byte*> combine_groups(std::vector<std::byte*> inputs,
                                                           const std::byte* kept, Combine combine) {
  for (const int factor : factors_of(static_cast<int>(inputs.size()))) {
    std::vector<std::byte*> combined;
    for (auto first = inputs.begin(); first != inputs.end(); first += factor) {
      const std::vector<std::byte*> last = combine_group({first, first + factor}, kept, combine);
      if (std::ssize(inputs) == factor) return {last.begin(), last.end()};
      std::byte* const output = last[0] == kept ? last[1] : last[0];
      combine(std::vector<const std::byte*>(last.begin(), last.end()), output);
      combined.push_back(output);
    }
    inputs = std::move(combined);
  }
  return {inputs.begin(), inputs.end()};
}

/// The owners that exchange data with each other in one step. The algorithm has one step for each
/// factor of `factors_of`. In the step with distance d, neighboring owners form groups of d, and
/// one owner from each of `factor` such groups take part: their places differ by multiples of d.
struct StepGroup {
  int distance = 1;
  int factor = 2;

  [[nodiscard]] int own_digit(const Owners& owners) const { return owners.own / distance % factor; }
  /// The rank of the owner at this place in the group.
  [[nodiscard]] int rank_with(const Owners& owners, int digit) const {
    return owners.rank(owners.own + (digit - own_digit(owners)) * distance);
  }
};

/// The groups of all steps, one for each factor.
[[nodiscard]] std::vector<StepGroup> step_groups(int owners);

/// A slice for its owners to reduce between hosts.
struct SliceTask {
  mpi::Exchange& exchange;
  const Owners& owners;
  int lane;  // the first of `InterNodeReduction::lanes`
  std::int64_t elements;
  reduction::Arithmetic last;  // the arithmetic between hosts; its dtype is that of the result
};

/// Reduces the inputs of all hosts for one slice. All owners get the same bits. Half types are
/// computed in f32 until the last reduction, which rounds once.
///
/// The network accesses only memory of the exchange, which keeps it if this object ends
/// prematurely.
class InterNodeReduction {
 public:
  static constexpr int lanes = 2;  // one for inputs and combinations, one for results

  /// The exchange and the owners must outlive this object.
  explicit InterNodeReduction(const SliceTask& task);
  virtual ~InterNodeReduction() = default;
  InterNodeReduction(const InterNodeReduction&) = delete;
  InterNodeReduction& operator=(const InterNodeReduction&) = delete;

  /// Memory for this host's input, of type `combined_type`.
  [[nodiscard]] std::byte* input() const { return combined_; }
  /// Starts sending. The input must be in place.
  virtual void send() = 0;
  /// True once the result is complete and no message is in transmission.
  [[nodiscard]] virtual bool advance() = 0;
  /// True if nothing remains to be sent. Several reductions may share lanes between the same owners
  /// if they begin in the same order on all owners, and if each is advanced only after its
  /// predecessors have sent everything.
  [[nodiscard]] virtual bool has_sent_all() const = 0;
  [[nodiscard]] const std::byte* result() const { return result_; }
  /// Call it when `advance` has returned true and the result has been read.
  void give_back();

 protected:
  [[nodiscard]] std::int64_t combined_bytes(std::int64_t elements) const;
  [[nodiscard]] std::int64_t result_bytes(std::int64_t elements) const;
  /// Takes memory from the exchange for the lifetime of this object.
  [[nodiscard]] std::byte* take(std::int64_t bytes);
  /// Divides the slice into as many parts as there are owners. Places wrap around.
  [[nodiscard]] Slice section(int owner) const;

  /// Reduces the inputs in the order given, without the postscale and the divisor. The output may
  /// be one of the inputs.
  void combine(reduction::Inputs inputs, std::int64_t elements, std::byte* output) const;
  /// The same with the postscale and the divisor. `output` is a part of the result. `scratch` has
  /// room for the elements in `combined_type`, and may be one of the inputs.
  void finish(reduction::Inputs inputs, std::int64_t elements, std::byte* scratch,
              std::byte* output) const;

  mpi::Exchange& exchange_;
  const Owners& owners_;
  const int lane_;
  const std::int64_t elements_;
  const reduction::Arithmetic last_;
  std::vector<std::byte*> taken_{};
  std::byte* const combined_;
  std::byte* const result_;
};

/// All owners of a slice must select the same algorithm.
[[nodiscard]] std::unique_ptr<InterNodeReduction> make_inter_node_reduction(
    InterNodeAlgorithm algorithm, const SliceTask& task);

}  // namespace kolo::internal::backend::internode

// SPDX-License-Identifier: Apache-2.0
// The reduction of one slice between hosts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/batch.hpp"
#include "backend/internode/algorithms.hpp"
#include "backend/internode/placement.hpp"
#include "backend/mpi/exchange.hpp"
#include "reduction/reduce.hpp"

namespace kolo::internal::backend::internode {

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

  /// Reduces the inputs in this order, without the postscale and the divisor. The output may be one
  /// of the inputs.
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

// `whole` distinguishes two algorithms of `make_direct`.
[[nodiscard]] std::unique_ptr<InterNodeReduction> make_direct(const SliceTask& task, bool whole);
[[nodiscard]] std::unique_ptr<InterNodeReduction> make_doubling(const SliceTask& task);
[[nodiscard]] std::unique_ptr<InterNodeReduction> make_halving(const SliceTask& task);

}  // namespace kolo::internal::backend::internode

// SPDX-License-Identifier: Apache-2.0
// A random program of operations. Every rank derives the same program from the seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kolo/collectives.hpp"

namespace kolo::internal::differential {

enum class Kind : std::uint8_t {
  allreduce,
  reducescatter,
  allgather,
  alltoall,
  broadcast,
  broadcast_string,
  barrier,
};

/// The mistake of one rank, the odd one.
enum class Mistake : std::uint8_t {
  dtype,
  shape,
  reduce_op,
  prescale,
  compression,
  root,
  kind,
  number_of_tensors,
};

struct Tensor {
  DType dtype = DType::f32;
  Shape shape{};  // in allgather and alltoall, the first length differs between ranks
};

/// An operation that all ranks of a set submit, except those that have joined.
struct Operation {
  std::uint64_t number = 0;  // unique number, from which the data follow
  std::string name{};        // "": none
  std::size_t set = 0;       // index among the sets of its phase
  std::vector<int> members{};
  std::vector<int> present{};  // members that submit the operation
  Kind kind = Kind::barrier;
  std::vector<Tensor> tensors{};
  ReduceOp op = ReduceOp::sum;
  double prescale = 1.0;
  double postscale = 1.0;
  Compression compression = Compression::none;
  AverageOver average_over = AverageOver::all;
  bool fuse_exactly = false;
  bool in_place = true;
  int root = 0;
  std::optional<Mistake> mistake{};
  int odd = -1;                // the rank that makes the mistake
  bool refused_first = false;  // each rank first tries a call that is refused

  [[nodiscard]] std::int64_t divisor() const {
    return static_cast<std::int64_t>(average_over == AverageOver::all ? members.size()
                                                                      : present.size());
  }
};

/// A change of the process sets before the operations of a phase.
struct SetChange {
  std::vector<int> added{};    // empty: a set is removed
  std::size_t removed = 0;     // index among the sets so far
  bool while_pending = false;  // its first member waits in it for another one
};

/// Sets after the changes are numbered from 0, the world; when a set is removed, the last set gets
/// its number.
struct Phase {
  std::vector<SetChange> changes{};
  std::vector<Operation> operations{};      // submitted by all ranks
  std::vector<int> joining{};               // ranks that join first; empty: no joins in this phase
  std::vector<Operation> without_joined{};  // submitted by the other ranks, which join afterwards
  bool in_step = false;  // every rank uses the same order, and waits for each operation
  int threads = 1;
};

struct Program {
  std::uint64_t seed = 0;
  std::int64_t fusion_threshold = 0;
  std::int64_t cache_capacity = 0;
  std::vector<Phase> phases{};
};

[[nodiscard]] Program make_program(std::uint64_t seed, int ranks);

/// The operation as `rank` submits it, with the mistake of the odd rank.
[[nodiscard]] Operation as_submitted(Operation operation, int rank);

/// Describes the operation in messages.
[[nodiscard]] std::string to_string(const Operation& operation);

}  // namespace kolo::internal::differential

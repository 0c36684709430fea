// SPDX-License-Identifier: Apache-2.0
// Options of collectives, which are in kolo/collectives.hpp.
#pragma once

#include <string>

#include "kolo/process_set.hpp"
#include "kolo/types.hpp"

namespace kolo {

/// Options of `allreduce`.
struct AllreduceOptions {
  std::string name{};  ///< Matches the operation across ranks; "" matches by order.
  ReduceOp op = ReduceOp::average;
  double prescale = 1.0;   ///< Factor for each rank's elements before the reduction.
  double postscale = 1.0;  ///< Factor for the result.
  Compression compression = Compression::none;
  AverageOver average_over = AverageOver::all;
  ProcessSet process_set{};  ///< Ranks that take part.
};

/// Options of `grouped_allreduce`.
struct GroupedAllreduceOptions {
  std::string name{};  ///< Matches the group across ranks; "" matches by order.
  ReduceOp op = ReduceOp::average;
  double prescale = 1.0;   ///< Factor for each rank's elements before the reduction.
  double postscale = 1.0;  ///< Factor for the result.
  Compression compression = Compression::none;
  AverageOver average_over = AverageOver::all;
  bool fuse_exactly = false;  ///< Do not fuse the group with other operations.
  ProcessSet process_set{};   ///< Ranks that take part.
};

/// Options of `reducescatter` and `grouped_reducescatter`.
struct ReducescatterOptions {
  std::string name{};               ///< Matches the operation across ranks; "" matches by order.
  ReduceOp op = ReduceOp::average;  ///< Any except adasum.
  double prescale = 1.0;            ///< Factor for each rank's elements before the reduction.
  double postscale = 1.0;           ///< Factor for the result.
  Compression compression = Compression::none;
  ProcessSet process_set{};  ///< Ranks that take part.
};

/// Options of `allgather` and `grouped_allgather`.
struct AllgatherOptions {
  std::string name{};        ///< Matches the operation across ranks; "" matches by order.
  ProcessSet process_set{};  ///< Ranks that take part.
};

/// Options of `broadcast`.
struct BroadcastOptions {
  std::string name{};        ///< Matches the operation across ranks; "" matches by order.
  ProcessSet process_set{};  ///< Ranks that take part.
};

/// Options of `alltoall`.
struct AlltoallOptions {
  std::string name{};        ///< Matches the operation across ranks; "" matches by order.
  ProcessSet process_set{};  ///< Ranks that take part.
};

/// Options of `barrier`.
struct BarrierOptions {
  std::string name{};        ///< Matches the operation across ranks; "" matches by order.
  ProcessSet process_set{};  ///< Ranks that take part.
};

}  // namespace kolo

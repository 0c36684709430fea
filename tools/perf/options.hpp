// SPDX-License-Identifier: Apache-2.0
// The command line's options.
#pragma once

#include <cstdint>
#include <kolo/collectives.hpp>
#include <kolo/tensor.hpp>
#include <string>
#include <vector>

#include "names.hpp"

namespace perf {

enum class Operation : std::uint8_t {
  allreduce,
  allgather,
  broadcast,
  alltoall,
  reducescatter,
  barrier,
};

inline constexpr Names<Operation, 6> operation_names{{
    {Operation::allreduce, "allreduce"},
    {Operation::allgather, "allgather"},
    {Operation::broadcast, "broadcast"},
    {Operation::alltoall, "alltoall"},
    {Operation::reducescatter, "reducescatter"},
    {Operation::barrier, "barrier"},
}};

/// How MPI reduces a set of gradients: `flat` reduces one buffer of the same size, `each` reduces
/// one gradient after the other, `packed` copies them into one buffer, reduces it, and copies back.
enum class Peer : std::uint8_t { flat, each, packed };

inline constexpr Names<Peer, 3> peer_names{{
    {Peer::flat, "flat"},
    {Peer::each, "each"},
    {Peer::packed, "packed"},
}};

/// The memory of an allreduce's tensors: private to the rank, or a `kolo::SharedVector`, which the
/// other ranks of the host read in place.
enum class Memory : std::uint8_t { own, shared };

inline constexpr Names<Memory, 2> memory_names{{
    {Memory::own, "private"},
    {Memory::shared, "shared"},
}};

/// Device of the tensors. MPI is not measured on GPUs.
enum class TensorDevice : std::uint8_t { cpu, cuda };

inline constexpr Names<TensorDevice, 2> device_names{{
    {TensorDevice::cpu, "cpu"},
    {TensorDevice::cuda, "cuda"},
}};

/// `busy`: iterations back to back. `from_sleep`: each iteration after a pause. `idle`: no
/// iterations, only the processor time of a session without work.
enum class Mode : std::uint8_t { busy, from_sleep, idle };

inline constexpr Names<Mode, 3> mode_names{{
    {Mode::busy, "busy"},
    {Mode::from_sleep, "from-sleep"},
    {Mode::idle, "idle"},
}};

enum class Format : std::uint8_t { table, csv, json };

struct Options {
  std::string answer;  ///< Output of --help, --version, --list-gradients or --memory-plan.
  Mode mode = Mode::busy;
  Format format = Format::table;
  std::vector<Operation> operations;
  std::vector<std::int64_t> sizes;  ///< Bytes.
  std::vector<kolo::DType> dtypes;
  kolo::ReduceOp reduce_op = kolo::ReduceOp::sum;
  std::vector<std::string> gradients;  ///< If not empty, measured in place of `operations`.
  std::vector<Peer> peers;
  std::vector<Memory> memories;  ///< For allreduces; other operations use private memory.
  TensorDevice device = TensorDevice::cpu;
  int warmup = 5;
  int iterations = 20;
  double seconds = 10.0;
  std::uint64_t seed = 1;
};

/// Parses the command line. Throws UsageError.
[[nodiscard]] Options parse_options(int argc, const char* const* argv);

}  // namespace perf

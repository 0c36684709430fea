// What the command line asks for.
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

/// What MPI does for a set of gradients: `flat` reduces one buffer of the same size, `each` one
/// gradient after the other, `packed` copies them together, reduces that and copies them back.
enum class Peer : std::uint8_t { flat, each, packed };

inline constexpr Names<Peer, 3> peer_names{{
    {Peer::flat, "flat"},
    {Peer::each, "each"},
    {Peer::packed, "packed"},
}};

/// Where the tensors of an allreduce lie: in memory of the rank's own, or in what Kolo lets the
/// other ranks of the host read where it is, `kolo::SharedVector`.
enum class Memory : std::uint8_t { own, shared };

inline constexpr Names<Memory, 2> memory_names{{
    {Memory::own, "private"},
    {Memory::shared, "shared"},
}};

/// Where the tensors are. On GPUs there is no MPI to compare with.
enum class Place : std::uint8_t { cpu, cuda };

inline constexpr Names<Place, 2> place_names{{
    {Place::cpu, "cpu"},
    {Place::cuda, "cuda"},
}};

/// `busy`: one iteration after the other. `from_sleep`: each after a silence. `idle`: no
/// iterations, only the processor time of a session with nothing to do.
enum class Mode : std::uint8_t { busy, from_sleep, idle };

inline constexpr Names<Mode, 3> mode_names{{
    {Mode::busy, "busy"},
    {Mode::from_sleep, "from-sleep"},
    {Mode::idle, "idle"},
}};

enum class Format : std::uint8_t { table, csv, json };

struct Options {
  std::string answer;  ///< To --help, --version or --list-gradients: print it and do nothing else.
  Mode mode = Mode::busy;
  Format format = Format::table;
  std::vector<Operation> operations;
  std::vector<std::int64_t> sizes;  ///< Bytes.
  std::vector<kolo::DType> dtypes;
  kolo::ReduceOp reduce_op = kolo::ReduceOp::sum;
  std::vector<std::string> gradients;  ///< If there are any, they take the operations' place.
  std::vector<Peer> peers;
  std::vector<Memory> memories;  ///< Of allreduces; all else is in private memory.
  Place place = Place::cpu;
  int warmup = 5;
  int iterations = 20;
  double seconds = 10.0;
  std::uint64_t seed = 1;
};

/// Throws UsageError.
[[nodiscard]] Options parse_options(int argc, const char* const* argv);

}  // namespace perf

// The way of one slice from host to host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/batch.hpp"
#include "backend/mpi/exchange.hpp"
#include "reduction/reduce.hpp"

namespace kolo::backend::hierarchical {

/// Those who own the same slice, one rank of each host, in the order of the hosts. At least two.
struct Owners {
  std::vector<int> ranks{};
  int own = 0;  // this rank's place

  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
};

/// Reduces what the hosts have of a slice. Each owner reduces one section of it in the order of the
/// hosts and sends the result to the others; or, of a short slice or between two hosts, all of it.
/// So all get the same bits. Half types are f32 until the last reduction, which rounds once.
///
/// All that the network reads and writes is memory of the exchange. Used for one slice after the
/// other.
class Crossing {
 public:
  /// Takes two lanes from `lane` on. Everything outlives this.
  Crossing(mpi::Exchange& exchange, const Owners& owners, int lane)
      : exchange_(exchange), owners_(owners), lane_(lane) {}

  /// The type in which elements of `wire` are combined.
  [[nodiscard]] static DType combined_type(DType wire);

  [[nodiscard]] bool begun() const { return combined_ != nullptr; }

  /// Gives memory for what this host has of `elements`, as `combined_type`. `last` is the
  /// arithmetic between hosts, its dtype the one in which the result is wanted. Slices of at most
  /// `most_bytes_whole` are exchanged as a whole.
  [[nodiscard]] std::byte* begin(std::int64_t elements, const reduction::Arithmetic& last,
                                 std::int64_t most_bytes_whole);
  /// It is there.
  void send();
  /// Once it says true the result is there.
  [[nodiscard]] bool advance();
  [[nodiscard]] const std::byte* result() const { return result_; }
  /// Another slice may begin.
  void end();

 private:
  /// Of the slice, what the owner reduces.
  [[nodiscard]] Slice section(int owner) const;
  [[nodiscard]] std::int64_t combined_bytes(std::int64_t elements) const;
  [[nodiscard]] std::int64_t result_bytes(std::int64_t elements) const;
  /// Where the version of another owner is put.
  [[nodiscard]] std::byte* version(int owner) const;
  void receive();
  void reduce();
  void spread();
  /// Calls `use(owner, rank)` for the others, each rank in another order, so that not all send to
  /// the same one first.
  template <typename Use>
  void for_each_other(Use use) const;

  mpi::Exchange& exchange_;
  const Owners& owners_;
  int lane_;

  std::int64_t elements_ = 0;
  reduction::Arithmetic last_{};
  bool whole_ = false;  // every owner reduces all of the slice
  bool reduced_ = false;
  std::byte* combined_ = nullptr;  // by this host
  std::byte* versions_ = nullptr;  // the others' of this owner's section
  std::byte* result_ = nullptr;
  int under_way_ = 0;  // sections to their owners, results
  int receiving_ = 0;  // versions
  std::vector<const std::byte*> inputs_{};
};

}  // namespace kolo::backend::hierarchical

// The way of one slice from host to host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/batch.hpp"
#include "backend/hierarchical/owners.hpp"
#include "backend/hierarchical/ways.hpp"
#include "backend/mpi/exchange.hpp"
#include "reduction/reduce.hpp"

namespace kolo::backend::hierarchical {

/// Reduces what the hosts have of one slice; all owners get the same bits. Half types are f32 until
/// the last reduction, which rounds once.
///
/// All that the network reads and writes is memory of the exchange.
class Crossing {
 public:
  static constexpr int lanes = 2;

  /// `last` is the arithmetic between hosts, its dtype the one in which the result is wanted. Takes
  /// the lanes from `lane` on. Exchange and owners outlive this.
  Crossing(mpi::Exchange& exchange, const Owners& owners, int lane, std::int64_t elements,
           const reduction::Arithmetic& last);
  virtual ~Crossing();
  Crossing(const Crossing&) = delete;
  Crossing& operator=(const Crossing&) = delete;

  /// The type in which elements of `wire` are combined.
  [[nodiscard]] static DType combined_type(DType wire);

  /// Memory for what this host has, as `combined_type`.
  [[nodiscard]] std::byte* input() const { return combined_; }
  /// It is there.
  virtual void send() = 0;
  /// Once it says true the result is there, and this may end.
  [[nodiscard]] virtual bool advance() = 0;
  [[nodiscard]] const std::byte* result() const { return result_; }

 protected:
  [[nodiscard]] std::int64_t combined_bytes(std::int64_t elements) const;
  [[nodiscard]] std::int64_t result_bytes(std::int64_t elements) const;
  /// Of the slice, one of as many parts as there are owners; places go round.
  [[nodiscard]] Slice section(int owner) const;

  /// In this order, but not yet the last of it. The output may be one of the inputs.
  void combine(reduction::Inputs inputs, std::int64_t elements, std::byte* output) const;
  /// The same, and what the last reduction does. `output` is part of the result; `scratch` has
  /// room for what is combined, and may be one of the inputs.
  void finish(reduction::Inputs inputs, std::int64_t elements, std::byte* scratch,
              std::byte* output) const;

  mpi::Exchange& exchange_;
  const Owners& owners_;
  const int lane_;
  const std::int64_t elements_;
  const reduction::Arithmetic last_;
  std::byte* const combined_;
  std::byte* const result_;
};

/// All that owners of a slice send each other is as long on both sides because they choose the same
/// way.
[[nodiscard]] std::unique_ptr<Crossing> make_crossing(Way way, mpi::Exchange& exchange,
                                                      const Owners& owners, int lane,
                                                      std::int64_t elements,
                                                      const reduction::Arithmetic& last);

}  // namespace kolo::backend::hierarchical

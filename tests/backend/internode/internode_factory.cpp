// SPDX-License-Identifier: Apache-2.0
// The backend under test is the one between hosts, on emulated hosts. Batches that it does not
// execute take another route, as in a session. KOLO_TEST_LAYOUT is the layout of the ranks; with
// -1, the variants are all layouts with all algorithms.
#include <optional>

#include "backend/mpi/mpi_backend.hpp"
#include "internode_fixture.hpp"

namespace kolo::internal::backend {
namespace {

struct Variant {
  std::size_t layout = 0;
  std::optional<internode::InterNodeAlgorithm> algorithm{};  // else the one for the size
};

std::vector<Variant> all_variants(int ranks) {
  constexpr int chosen = KOLO_TEST_LAYOUT;
  if (chosen >= 0) return {{.layout = static_cast<std::size_t>(chosen)}};
  std::vector<Variant> all;
  for (std::size_t layout = 0; layout < layouts.size(); ++layout)
    for (const auto algorithm : algorithms_for(layout, layouts[layout].of(ranks)))
      all.push_back({layout, algorithm});
  return all;
}

class OnMadeUpHosts : public Backend {
 public:
  OnMadeUpHosts(MPI_Comm comm, const NodeOf& node_of, std::int64_t piece_bytes)
      : hosts_(comm, node_of, piece_bytes), over_mpi_(hosts_.messenger(), piece_bytes) {}

  [[nodiscard]] std::unique_ptr<Execution> start(Batch batch) override {
    if (hosts_.across().can_execute(batch)) return hosts_.across().start(std::move(batch));
    if (hosts_.inside().can_execute(batch)) return hosts_.inside().start(std::move(batch));
    return over_mpi_.start(std::move(batch));
  }
  [[nodiscard]] std::uint64_t sequence_span() const override { return over_mpi_.sequence_span(); }
  void use(internode::InterNodeAlgorithm algorithm) { hosts_.across().use(algorithm); }

 private:
  MadeUpHosts hosts_;
  MpiBackend over_mpi_;
};

}  // namespace

std::vector<std::string> variants(int ranks) {
  std::vector<std::string> names;
  for (const Variant& variant : all_variants(ranks))
    names.push_back(layouts[variant.layout].name +
                    (variant.algorithm
                         ? ", algorithm " + std::to_string(static_cast<int>(*variant.algorithm))
                         : ""));
  return names;
}

std::unique_ptr<Backend> make_backend(MPI_Comm comm, std::int64_t piece_bytes,
                                      std::size_t variant) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  const Variant chosen = all_variants(size).at(variant);
  MPI_Barrier(comm);  // the last batch may still be read
  auto backend =
      std::make_unique<OnMadeUpHosts>(comm, layouts.at(chosen.layout).of(size), piece_bytes);
  if (chosen.algorithm) backend->use(*chosen.algorithm);
  return backend;
}

std::int64_t default_piece_bytes() { return InterNodeBackend::default_slot_bytes; }
std::int64_t large_piece_bytes() { return std::int64_t{1} << 22; }

}  // namespace kolo::internal::backend

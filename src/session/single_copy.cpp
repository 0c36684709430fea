#include "session/single_copy.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "backend/shm/shm_backend.hpp"
#include "node/mpi_error.hpp"
#include "node/process_memory.hpp"

namespace kolo::session {
namespace {

using node::check_mpi;

constexpr std::int64_t never = backend::ShmBackend::never_single_copy;
constexpr std::size_t most_piece = backend::ShmBackend::default_piece_bytes;
/// Reading small pieces is a matter of the call, not of memory.
constexpr std::size_t least_piece = most_piece / 4;
/// More than a core's own caches hold of all that is touched.
constexpr std::size_t tensor_bytes = std::size_t{4} << 20;
constexpr int rounds = 5;
/// So much faster it has to be, or else it is left alone.
constexpr double margin = 0.9;

template <typename T>
T reduced(MPI_Comm host, T mine, MPI_Datatype type, MPI_Op op) {
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &mine, 1, type, op, host), "MPI_Allreduce");
  return mine;
}

/// An allreduce's copies of a tensor, made both ways at once by all ranks of the host, without the
/// arithmetic, which is the same.
class Trial {
 public:
  Trial(MPI_Comm host, const node::Neighbourhood& neighbours)
      : host_(host), neighbours_(neighbours), tensor_(tensor_bytes), scratch_(most_piece) {
    void* const block = neighbours.own_heap()->allocate(most_piece);
    own_staging_ = static_cast<std::byte*>(block);
    const std::byte* const heap = neighbours.heap(neighbours.index()).data();
    Places mine{reinterpret_cast<std::uintptr_t>(tensor_.data()),
                block == nullptr ? no_staging : static_cast<std::uint64_t>(own_staging_ - heap)};
    places_.resize(static_cast<std::size_t>(neighbours.size()));
    check_mpi(MPI_Allgather(mine.data(), static_cast<int>(mine.size()), MPI_UINT64_T,
                            places_.data(), static_cast<int>(mine.size()), MPI_UINT64_T, host),
              "MPI_Allgather");
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;
  ~Trial() {
    MPI_Barrier(host_);  // nobody reads this rank's memory any more
    if (own_staging_ != nullptr) neighbours_.own_heap()->deallocate(own_staging_, most_piece);
  }

  /// Every rank of the host may read every other's private memory.
  [[nodiscard]] bool is_allowed() {
    bool mine = true;
    for (int other = 0; other < neighbours_.size(); ++other)
      mine = mine && (other == neighbours_.index() || read(other, 0, scratch_.data(), 1));
    return reduced(host_, mine ? 1 : 0, MPI_INT, MPI_MIN) != 0;
  }

  [[nodiscard]] bool single_is_faster(std::size_t piece) {
    if (!all_can_stage()) return false;
    std::array<double, rounds> staged{};
    std::array<double, rounds> single{};
    for (std::size_t i = 0; i < rounds; ++i) {
      staged[i] = time_of([&](std::size_t offset) { stage(offset, piece); }, piece);
      single[i] = time_of([&](std::size_t offset) { read_others(offset, piece); }, piece);
    }
    const double ratio = median(single) / median(staged);
    return reduced(host_, ratio, MPI_DOUBLE, MPI_MAX) < margin;
  }

 private:
  using Places = std::array<std::uint64_t, 2>;  // the tensor's address, the staging's offset
  static constexpr std::uint64_t no_staging = ~std::uint64_t{0};

  static double median(std::array<double, rounds> values) {
    std::ranges::sort(values);
    return values[rounds / 2];
  }

  [[nodiscard]] bool all_can_stage() const {
    return std::ranges::none_of(places_,
                                [](const Places& places) { return places[1] == no_staging; });
  }

  template <typename Work>
  double time_of(Work work, std::size_t piece) {
    check_mpi(MPI_Barrier(host_), "MPI_Barrier");
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t offset = 0; offset < tensor_bytes; offset += piece) work(offset);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  /// What is for others goes into the staging, and the result's slice comes out of it again; the
  /// others' parts and results are read from theirs.
  void stage(std::size_t offset, std::size_t piece) {
    const std::size_t slice = piece / static_cast<std::size_t>(neighbours_.size());
    std::memcpy(own_staging_, tensor_.data() + offset, piece - slice);
    for_each_other([&](int other, std::size_t place) {
      const std::byte* const theirs =
          neighbours_.heap(other).data() + places_[static_cast<std::size_t>(other)][1];
      std::memcpy(scratch_.data(), theirs, slice);
      std::memcpy(tensor_.data() + offset + place * slice, theirs + slice, slice);
    });
    std::memcpy(tensor_.data() + offset, own_staging_, slice);
  }

  void read_others(std::size_t offset, std::size_t piece) {
    const std::size_t slice = piece / static_cast<std::size_t>(neighbours_.size());
    for_each_other([&](int other, std::size_t place) {
      static_cast<void>(read(other, offset, scratch_.data(), slice));
      static_cast<void>(read(other, offset, tensor_.data() + offset + place * slice, slice));
    });
  }

  /// `place` counts the others from 1.
  template <typename Visitor>
  void for_each_other(Visitor visit) {
    std::size_t place = 0;
    for (int other = 0; other < neighbours_.size(); ++other)
      if (other != neighbours_.index()) visit(other, ++place);
  }

  bool read(int other, std::size_t offset, std::byte* to, std::size_t bytes) {
    return node::read_memory(neighbours_.process(other),
                             places_[static_cast<std::size_t>(other)][0] + offset, to, bytes);
  }

  MPI_Comm host_;
  const node::Neighbourhood& neighbours_;
  std::vector<std::byte> tensor_;
  std::vector<std::byte> scratch_;
  std::byte* own_staging_ = nullptr;
  std::vector<Places> places_{};
};

}  // namespace

SingleCopyChoice choose_single_copy(MPI_Comm host, const node::Neighbourhood& neighbours,
                                    SingleCopy wanted) {
  const bool off = reduced(host, wanted == SingleCopy::off ? 1 : 0, MPI_INT, MPI_MAX) != 0;
  const bool on = reduced(host, wanted == SingleCopy::on ? 1 : 0, MPI_INT, MPI_MAX) != 0;
  if (off || neighbours.size() == 1) return {never};
  Trial trial(host, neighbours);
  if (!trial.is_allowed())
    return {never, wanted == SingleCopy::on
                       ? "single_copy is on, but the ranks of this host may not read each other's "
                         "memory (see ptrace_scope in proc(5))"
                       : ""};
  if (on) return {static_cast<std::int64_t>(least_piece)};
  SingleCopyChoice choice{never};
  for (std::size_t piece = most_piece; piece >= least_piece && trial.single_is_faster(piece);
       piece /= 2)
    choice.from = static_cast<std::int64_t>(piece);
  return choice;
}

}  // namespace kolo::session

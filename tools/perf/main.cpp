// SPDX-License-Identifier: Apache-2.0
// Measures Kolo's collectives next to MPI's:
//
//     mpirun -np 4 kolo-perf --operation allreduce --sizes 4,64K,16M
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <kolo/cuda.hpp>
#include <kolo/mpi.hpp>
#include <kolo/session.hpp>
#include <memory>
#include <string>
#include <vector>

#include "data_path.hpp"
#include "elements.hpp"
#include "gradient_sets.hpp"
#include "measure.hpp"
#include "options.hpp"
#include "pattern.hpp"
#include "report.hpp"
#include "workload.hpp"
#include "world.hpp"

namespace perf {
namespace {

/// Initializes and finalizes MPI. Kolo's progress thread calls MPI concurrently with the program,
/// so MPI_THREAD_MULTIPLE is needed.
class MpiRuntime {
 public:
  MpiRuntime(int* argc, char*** argv) {
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided_);
  }
  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;
  ~MpiRuntime() { MPI_Finalize(); }

  [[nodiscard]] bool is_threaded() const { return provided_ == MPI_THREAD_MULTIPLE; }

 private:
  int provided_ = MPI_THREAD_SINGLE;
};

/// A Kolo session of all ranks.
class KoloRuntime {
 public:
  /// An operation on GPU tensors is measured until the GPU is done.
  KoloRuntime() { kolo::init(MPI_COMM_WORLD, {.gpu_blocking_wait = true}); }
  KoloRuntime(const KoloRuntime&) = delete;
  KoloRuntime& operator=(const KoloRuntime&) = delete;
  ~KoloRuntime() { kolo::shutdown(); }
};

/// A progress line that is rewritten in place; only on a terminal.
class Progress {
 public:
  Progress(bool speaks, std::size_t rows)
      : speaks_(speaks && isatty(STDERR_FILENO) == 1), rows_(rows) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }

  void show(std::size_t row, const std::string& label, int iteration) {
    if (speaks_) fmt::print(stderr, "\r\033[K[{}/{}] {}: {}", row + 1, rows_, label, iteration);
  }
  void clear() {
    if (speaks_) fmt::print(stderr, "\r\033[K");
  }

 private:
  bool speaks_;
  std::size_t rows_;
};

Row measure_row(const Case& what, Meter& meter, const World& world,
                const std::function<void(int)>& progress) {
  const std::unique_ptr<Workload> workload = make_workload(what, world);
  Row row{.what = what,
          .bytes = workload->elements() * size_of(what.dtype),
          .elements = workload->elements(),
          .tensors = workload->tensors(),
          .path = data_path(what),
          .ranks = world.size()};
  row.measured = meter.measure(*workload, progress);
  return row;
}

std::int64_t run_rows(const Options& options, const World& world, Report* report) {
  std::vector<Case> rows = plan_rows(options);
  if (options.device == TensorDevice::cuda) {
    const kolo::CudaDevice gpu(kolo::local_rank() % kolo::CudaDevice::count());
    for (Case& row : rows) row.gpu = gpu;
  }
  Progress progress(report != nullptr, rows.size());
  Meter meter(options, world);
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string label = label_of(rows[i]);
    const Row row = measure_row(rows[i], meter, world,
                                [&](int iteration) { progress.show(i, label, iteration); });
    wrong += row.measured.kolo.wrong + (row.measured.mpi ? row.measured.mpi->wrong : 0);
    progress.clear();
    if (report != nullptr) report->add(row);
  }
  return wrong;
}

void run_idle(const Options& options, const World& world, Report* report) {
  const std::vector<double> percent = measure_idle(options.seconds, world);
  if (report == nullptr) return;
  for (std::size_t rank = 0; rank < percent.size(); ++rank)
    report->add_idle(static_cast<int>(rank), options.seconds, percent[rank]);
}

void check_options(const Options& options, const World& world) {
  if (world.size() == 1 && std::getenv("KOLO_RENDEZVOUS") != nullptr)
    throw UsageError("it compares Kolo with MPI: start it with mpirun, not kolorun");
  if (options.device == TensorDevice::cuda && kolo::build_info().cuda.empty())
    throw UsageError("--device cuda: this build of Kolo is without CUDA");
  if (options.device == TensorDevice::cuda && kolo::CudaDevice::count() == 0)
    throw UsageError("--device cuda: there is no GPU here, or no driver for it");
  if (options.mode == Mode::from_sleep && world.nodes() > 1)
    throw UsageError(fmt::format(
        "--mode from-sleep compares the clocks of the ranks, so it needs all of them on one node; "
        "they are on {}",
        world.nodes()));
  for (const Case& row : plan_rows(options)) {
    if (!reduce_op_of(row).empty()) check_exactness(row.dtype, row.reduce_op, world.size());
    if (!row.gradients.empty()) static_cast<void>(find_gradients(row.gradients, row.dtype));
  }
}

std::int64_t run(const Options& options, const World& world) {
  const std::unique_ptr<Report> report = world.rank() == 0 ? make_report(options.format) : nullptr;
  if (report != nullptr) report->begin(describe_environment(options, world));
  std::int64_t wrong = 0;
  if (options.mode == Mode::idle)
    run_idle(options, world, report.get());
  else
    wrong = run_rows(options, world, report.get());
  if (report != nullptr) report->end();
  return wrong;
}

constexpr int usage_status = 2;

/// Collective: true on all ranks if any rank has a complaint. The lowest such rank prints its own.
bool any_complains(const World& world, const std::string& complaint) {
  const int none = world.size();
  const int first = none - world.maximum(complaint.empty() ? 0 : none - world.rank());
  if (first == world.rank()) fmt::print(stderr, "kolo-perf: {} (see --help)\n", complaint);
  return first != none;
}

/// An exception on one rank aborts all ranks, because the others may wait for it inside MPI.
int run_session(const Options& options, const World& world) {
  std::int64_t wrong = 0;
  try {
    const KoloRuntime kolo;
    try {
      wrong = run(options, world);
    } catch (const std::exception& error) {
      fmt::print(stderr, "kolo-perf: rank {}: {}\n", world.rank(), error.what());
      MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "kolo-perf: rank {}: {}\n", world.rank(), error.what());
    return EXIT_FAILURE;
  }
  if (wrong == 0) return EXIT_SUCCESS;
  if (world.rank() == 0) fmt::print(stderr, "kolo-perf: {} elements were wrong\n", wrong);
  return EXIT_FAILURE;
}

}  // namespace
}  // namespace perf

int main(int argc, char** argv) {
  const perf::MpiRuntime mpi(&argc, &argv);
  const perf::World world;
  perf::Options options;
  std::string complaint;
  try {
    options = perf::parse_options(argc, argv);
    if (options.answer.empty()) perf::check_options(options, world);
  } catch (const perf::UsageError& error) {
    complaint = error.what();
  }
  if (perf::any_complains(world, complaint)) return perf::usage_status;
  if (!options.answer.empty()) {
    if (world.rank() == 0) fmt::print("{}", options.answer);
    return EXIT_SUCCESS;
  }
  if (!mpi.is_threaded()) {
    if (world.rank() == 0)
      fmt::print(stderr, "kolo-perf: this MPI lacks MPI_THREAD_MULTIPLE, which kolo-perf needs\n");
    return EXIT_FAILURE;
  }
  return perf::run_session(options, world);
}

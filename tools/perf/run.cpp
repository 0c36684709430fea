#include "run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <kolo/cuda.hpp>
#include <kolo/session.hpp>
#include <memory>
#include <vector>

#include "data_path.hpp"
#include "elements.hpp"
#include "environment.hpp"
#include "gradient_sets.hpp"
#include "idle.hpp"
#include "measure.hpp"
#include "pattern.hpp"
#include "report.hpp"
#include "workload.hpp"

namespace perf {
namespace {

/// One line, written over again, if a person watches.
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
  if (options.place == Place::cuda) {
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

}  // namespace

void check_options(const Options& options, const World& world) {
  if (options.place == Place::cuda && kolo::build_info().cuda.empty())
    throw UsageError("--device cuda: this build of Kolo is without CUDA");
  if (options.place == Place::cuda && kolo::CudaDevice::count() == 0)
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

}  // namespace perf

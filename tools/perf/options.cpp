// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <kolo/version.hpp>
#include <optional>

#include "elements.hpp"
#include "gradient_sets.hpp"
#include "memory_plan.hpp"
#include "pattern.hpp"
#include "sizes.hpp"

namespace perf {
namespace {

constexpr const char* description =
    "Measures Kolo's collectives and those of MPI, on the same buffers and in the same run, and "
    "verifies every result.\n\n"
    "  mpirun -np 4 kolo-perf --operation allreduce,allgather --sizes 4,64K,16M\n"
    "  mpirun -np 4 kolo-perf --gradients resnet50 --iterations 20 --json\n"
    "  kolo-perf --memory-plan bert-base --ranks 1,4\n\n"
    "Sizes are bytes: 4, 64K, 1M, 2G (powers of 1024). Several values are separated by commas.";

constexpr const char* footer =
    "A file for --gradients has one gradient per line, in the order of the model's layers: a name, "
    "then a\nshape or a number of elements; '#' starts a comment:\n\n"
    "  conv1.weight  64x3x7x7\n"
    "  fc.bias       1000\n\n"
    "Exit status: 0; 1 if a result was wrong or the run failed; 2 for a command line that cannot "
    "be "
    "used.";

/// The flags as written on the command line.
struct Flags {
  std::vector<std::string> operations{"allreduce"};
  std::vector<std::string> sizes{"4", "1K", "64K", "1M", "16M", "64M"};
  std::string min_size;
  std::string max_size;
  std::int64_t factor = 4;
  std::vector<std::string> dtypes{"f32"};
  std::string reduce_op = "sum";
  std::vector<std::string> peers{"flat"};
  std::vector<std::string> memories{"private"};
  std::string device = "cpu";
  std::string listed;
  std::string model;
  std::vector<int> ranks{1, 2, 4, 8};
  std::optional<std::string> unit;
  std::string optimizer = "adamw";
  std::string mode = "busy";
  bool csv = false;
  bool json = false;
};

void add_what(CLI::App& app, Flags& flags, Options& options) {
  CLI::Option* const operation =
      app.add_option("--operation", flags.operations,
                     "Operations to measure: " + join_names(operation_names))
          ->delimiter(',')
          ->capture_default_str();
  CLI::Option* const sizes =
      app.add_option("--sizes", flags.sizes,
                     "Sizes in bytes; docs/performance.md has the meaning per operation")
          ->delimiter(',')
          ->capture_default_str();
  CLI::Option* const smallest =
      app.add_option("--min-size", flags.min_size, "Smallest size of a series (default 4)")
          ->excludes(sizes);
  CLI::Option* const largest =
      app.add_option("--max-size", flags.max_size, "Largest size (default 64M)")->excludes(sizes);
  app.add_option("--factor", flags.factor, "Ratio of consecutive sizes")
      ->excludes(sizes)
      ->capture_default_str();
  app.add_option("--gradients", options.gradients,
                 "Sets of gradients to reduce instead: resnet50, resnet101, vgg16, bert-base, "
                 "1000x1KB (a count and a size), or a FILE")
      ->delimiter(',')
      ->excludes(operation)
      ->excludes(sizes)
      ->excludes(smallest)
      ->excludes(largest);
  app.add_option("--dtype", flags.dtypes, "Element type: " + join_names(dtype_names))
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--reduce-op", flags.reduce_op,
                 "Reduction operator: " + join_names(reduce_op_names))
      ->capture_default_str();
}

void add_how(CLI::App& app, Flags& flags, Options& options) {
  app.add_option("--peer", flags.peers,
                 "How MPI reduces a set of gradients: flat (one buffer of the same size), each "
                 "(one after the other), packed (copied into one buffer and back)")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--memory", flags.memories,
                 "Memory of an allreduce's tensors: private (to the rank), shared (other ranks of "
                 "the host read it without a copy)")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--device", flags.device,
                 "Device of the tensors: cpu, or cuda (each rank's GPU by its local rank; MPI is "
                 "not measured)")
      ->capture_default_str();
  app.add_option("--mode", flags.mode,
                 "busy (iterations back to back), from-sleep (a pause of 100 to 150 ms before each "
                 "iteration, random per rank; one node only), idle (processor time of a session "
                 "without work)")
      ->capture_default_str();
  app.add_option("--warmup", options.warmup, "Warm-up iterations per row")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--iterations", options.iterations, "Measured iterations per row")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "Duration of --mode idle")
      ->check(CLI::Range(0.01, 86400.0))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of the random pauses of --mode from-sleep")
      ->capture_default_str();
  CLI::Option* const csv = app.add_flag("--csv", flags.csv, "Print comma-separated values");
  app.add_flag("--json", flags.json, "Print JSON at the end")->excludes(csv);
  app.add_option("--list-gradients", flags.listed,
                 "Print this set of gradients in the format of a FILE, and stop");
  app.set_version_flag("--version", "kolo-perf " + std::string(kolo::version));
}

void add_memory_plan(CLI::App& app, Flags& flags) {
  CLI::Option* const plan = app.add_option(
      "--memory-plan", flags.model,
      "Print the memory per rank that training this MODEL needs by formula, and stop: a number of "
      "parameters such as 124M, a safetensors file or index, or as for --gradients");
  app.add_option("--ranks", flags.ranks, "Numbers of ranks for --memory-plan")
      ->delimiter(',')
      ->check(CLI::Range(1, 1'000'000))
      ->needs(plan)
      ->capture_default_str();
  app.add_option("--unit", flags.unit,
                 "Parameters of the largest unit for --memory-plan (default: of the largest layer)")
      ->needs(plan);
  app.add_option("--optimizer", flags.optimizer,
                 "Optimizer for --memory-plan: " + join_names(optimizer_names))
      ->needs(plan)
      ->capture_default_str();
}

template <typename T, std::size_t size>
std::vector<T> find_values(const Names<T, size>& names, std::string_view flag,
                           const std::vector<std::string>& strings) {
  std::vector<T> values;
  values.reserve(strings.size());
  for (const std::string& text : strings) values.push_back(find_value(names, flag, text));
  return values;
}

std::vector<std::int64_t> find_sizes(const CLI::App& app, const Flags& flags) {
  const bool series = app.count("--min-size") + app.count("--max-size") + app.count("--factor") > 0;
  if (series)
    return geometric_sizes(
        parse_bytes("--min-size", flags.min_size.empty() ? "4" : flags.min_size),
        parse_bytes("--max-size", flags.max_size.empty() ? "64M" : flags.max_size), flags.factor);
  std::vector<std::int64_t> sizes;
  for (const std::string& text : flags.sizes) sizes.push_back(parse_bytes("--sizes", text));
  return sizes;
}

/// Converts the flags that CLI11 leaves as strings.
void translate(const CLI::App& app, const Flags& flags, Options& options) {
  options.mode = find_value(mode_names, "--mode", flags.mode);
  options.format = flags.csv ? Format::csv : flags.json ? Format::json : Format::table;
  options.operations = find_values(operation_names, "--operation", flags.operations);
  options.sizes = find_sizes(app, flags);
  options.dtypes = find_values(dtype_names, "--dtype", flags.dtypes);
  options.reduce_op = find_value(reduce_op_names, "--reduce-op", flags.reduce_op);
  options.peers = find_values(peer_names, "--peer", flags.peers);
  options.memories = find_values(memory_names, "--memory", flags.memories);
  options.device = find_value(device_names, "--device", flags.device);
  if (options.device == TensorDevice::cuda &&
      std::ranges::count(options.memories, Memory::shared) > 0)
    throw UsageError("--memory shared is host memory: it cannot be used with --device cuda");
  if (!flags.listed.empty())
    options.answer = list_gradients(find_gradients(flags.listed, options.dtypes.front()));
  if (!flags.model.empty())
    options.answer = describe_memory(find_model_size(flags.model, flags.unit), flags.ranks,
                                     options.dtypes.front(),
                                     find_value(optimizer_names, "--optimizer", flags.optimizer));
}

}  // namespace

Options parse_options(int argc, const char* const* argv) {
  Options options;
  Flags flags;
  CLI::App app(description, "kolo-perf");
  app.footer(footer);
  app.get_formatter()->column_width(36);
  add_what(app, flags, options);
  add_how(app, flags, options);
  add_memory_plan(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    options.answer = app.help();
    return options;
  } catch (const CLI::CallForVersion& version) {
    options.answer = version.what() + std::string("\n");
    return options;
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  translate(app, flags, options);
  return options;
}

}  // namespace perf

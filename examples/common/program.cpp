// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <malloc.h>

#include <CLI/CLI.hpp>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <kolo/kolo.hpp>
#include <stdexcept>
#include <string>

namespace examples {
namespace {

std::string listed(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) text += i + 1 == numbers.size() ? " and " : ", ";
    text += std::to_string(numbers[i]);
  }
  return text;
}

}  // namespace

int run(int argc, char** argv, const std::function<void()>& work) {
  return run(
      argc, argv, [] { return true; }, work);
}

int run(int argc, char** argv, const std::function<bool()>& prepare,
        const std::function<void()>& work) {
  int rank = 0;
  try {
    if (!prepare()) return 0;
    const kolo::Session session(argc, argv);  // inside `try`: it ends before exit
    rank = kolo::rank();
    try {
      work();
    } catch (const UsageError& error) {  // a wrong command line, not a failure of the session
      if (rank == 0) std::fprintf(stderr, "%s\n", error.what());
      return 2;
    }
    return 0;
  } catch (const UsageError& error) {  // thrown by `prepare`
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 1;
  }
}

bool parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::CallForHelp&) {
    if (!kolo::initialized() || kolo::rank() == 0) std::printf("%s", app.help().c_str());
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + " (--help lists the options)");
  }
}

void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

void make_once(const std::filesystem::path& directory, const std::function<void()>& make) {
  kolo::on_one_rank(/*root=*/0, [&] {
    if (!std::filesystem::exists(directory)) make();
  });
}

void check_same_sizes(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> of_rank_0 = sizes;
  kolo::broadcast(of_rank_0, /*root=*/0);
  kolo::on_every_rank([&] {
    if (sizes == of_rank_0) return;
    throw std::runtime_error("this rank found sets of " + listed(sizes) +
                             " images, but rank 0 of " + listed(of_rank_0));
  });
}

}  // namespace examples

#include "program.hpp"

#include <malloc.h>

#include <CLI/CLI.hpp>
#include <climits>
#include <cstdio>
#include <exception>
#include <kolo/session.hpp>
#include <stdexcept>
#include <string>

namespace examples {

int run(int argc, char** argv, const std::function<void()>& work) {
  int rank = 0;
  try {
    const kolo::Session session(argc, argv);  // inside `try`, so that it ends before exit
    rank = kolo::rank();
    work();
    return 0;
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
    if (kolo::rank() == 0) std::printf("%s", app.help().c_str());
    return false;
  } catch (const CLI::ParseError& error) {
    throw std::runtime_error(std::string(error.what()) + " (--help lists the options)");
  }
}

void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

}  // namespace examples

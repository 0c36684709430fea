// SPDX-License-Identifier: Apache-2.0
// Checks timelines against the rules of their format: trace_program FILE...
#include <cstdio>
#include <exception>

#include "trace.hpp"

int main(int argc, char** argv) {
  int status = 0;
  for (int i = 1; i < argc; ++i) {
    try {
      const nlohmann::json trace = kolo::internal::test::read_trace(argv[i]);
      const std::string complaint = kolo::internal::test::check_trace(trace);
      std::printf("%s: %zu events%s%s\n", argv[i], trace.size(), complaint.empty() ? "" : ": ",
                  complaint.c_str());
      if (!complaint.empty() || trace.empty()) status = 1;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", argv[i], error.what());
      status = 1;
    }
  }
  return argc > 1 ? status : 2;
}

// SPDX-License-Identifier: Apache-2.0
// A user's program: every public call links and gives the right result.
#include <kolo/kolo.hpp>

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  const kolo::Session session(argc, argv);
  const int size = kolo::size();

  std::vector<float> gradient(1000, static_cast<float>(kolo::rank()));
  kolo::allreduce(gradient);
  std::int64_t sum = kolo::rank();
  kolo::allreduce(sum, {.op = kolo::ReduceOp::sum});
  std::string text = kolo::rank() == 0 ? "from rank 0" : "";
  kolo::broadcast(text, /*root=*/0);
  kolo::barrier();

  const float mean = static_cast<float>(size - 1) / 2.0F;
  const std::int64_t expected_sum = static_cast<std::int64_t>(size) * (size - 1) / 2;
  const bool right = gradient.front() == mean && gradient.back() == mean && sum == expected_sum &&
                     text == "from rank 0" && kolo::build_info().version == kolo::version;
  if (!right) std::cerr << "rank " << kolo::rank() << " got a wrong answer\n";
  return right ? 0 : 1;
}

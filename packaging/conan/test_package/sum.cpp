// SPDX-License-Identifier: Apache-2.0
#include <kolo/kolo.hpp>

int main(int argc, char** argv) {
  const kolo::Session session(argc, argv);
  float ranks = 1.0F;
  kolo::allreduce(ranks, {.op = kolo::ReduceOp::sum});
  return ranks == static_cast<float>(kolo::size()) ? 0 : 1;
}

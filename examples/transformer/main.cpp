// SPDX-License-Identifier: Apache-2.0
// Trains a small GPT, written in plain C++, on text with any number of ranks:
//
//     mpirun -np 2 transformer --text book.txt --accumulate 2 --compression bf16
//
// The lines that make it distributed are marked KOLO here, in adamw.hpp and in trainer.cpp.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <kolo/kolo.hpp>
#include <string>

#include "options.hpp"
#include "text.hpp"
#include "trainer.hpp"

namespace {

// KOLO: only rank 0 needs the file. If rank 0 cannot read it, all ranks throw.
std::string load_text(const gpt::Options& options) {
  std::string text;
  kolo::on_one_rank(/*root=*/0, [&] {
    text = options.text.empty() ? gpt::generate_text(options.text_size, options.seed)
                                : gpt::read_text(options.text);
  });
  kolo::broadcast(text, /*root=*/0);
  return text;
}

void train(const gpt::Options& options) {
  gpt::Trainer trainer(options, load_text(options));
  trainer.run();
  if (options.sample == 0) return;
  const std::string sample = trainer.write(options.sample);
  if (kolo::rank() == 0) fmt::print("---\n{}\n", sample);
}

}  // namespace

int main(int argc, char** argv) {
  int rank = 0;
  try {
    // KOLO: start. The session is inside `try`, so that it ends before the process exits.
    kolo::Session session(argc, argv);
    rank = kolo::rank();
    const auto options = gpt::parse_options(argc, argv, /*speak=*/rank == 0);
    if (options) train(*options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {}: {}\n", rank, error.what());
    return 1;
  }
}

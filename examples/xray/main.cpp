// Tells two classes of grey images apart, say chest X-rays with and without an opacity:
//
//     mpirun -np 2 xray --data chest_xray/train --compare
//
// What makes it distributed is marked KOLO here, in trainer.cpp, comparison.cpp and roc.cpp.
#include "trainer.hpp"  // first, as clang 14 needs it

#include <ATen/Parallel.h>

#include <cstdio>
#include <string>

#include "comparison.hpp"
#include "generator.hpp"
#include "program.hpp"
#include "same_data.hpp"

namespace {

using namespace xray;

Split find_images(const Options& options) {
  if (options.generate > 0) {
    kolo::on_one_rank(/*root=*/0, [&] {
      if (!std::filesystem::exists(options.data)) {
        generate(options.data, options.generate, options.seed);
      }
    });
  }
  Split files;
  kolo::on_every_rank([&] {
    const ImageFolder folder = read_folder(options.data);
    files = split(folder, options.validation_fraction, options.seed);
    const std::vector<double> weights = class_weights(files.train);
    if (kolo::rank() != 0) return;
    std::printf("%zu images to train on, %zu to validate; '%s' counts %.2f, '%s' %.2f\n",
                files.train.size(), files.validation.size(), folder.classes[0].c_str(), weights[0],
                folder.classes[1].c_str(), weights[1]);
  });
  examples::check_same_sizes({static_cast<std::int64_t>(files.train.size()),
                              static_cast<std::int64_t>(files.validation.size())});
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  examples::keep_freed_memory();
  return examples::run(argc, argv, [&] {
    const auto options = parse_options(argc, argv);
    if (!options) return;
    at::set_num_threads(options->threads);
    const std::vector<Outcome> outcomes = train(*options, find_images(*options));
    if (kolo::rank() == 0) print_table(outcomes);
  });
}

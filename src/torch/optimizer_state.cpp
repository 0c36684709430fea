// Every rank's optimizer starts from the same state and options.
#include "kolo/torch.hpp"

#include <c10/util/Type.h>
#include <torch/serialize/archive.h>

#include <sstream>
#include <typeinfo>

#include "base/rank_set.hpp"
#include "torch/agreement.hpp"
#include "torch/tensor_view.hpp"

namespace kolo {
namespace {

using ::torch::optim::Optimizer;
using ::torch::serialize::InputArchive;
using ::torch::serialize::OutputArchive;

void require_same_structure(const Optimizer& optimizer) {
  std::vector<detail::Item> items{{"class", c10::demangle(typeid(optimizer).name())}};
  const auto& groups = optimizer.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto& tensors = groups[i].params();
    for (std::size_t j = 0; j < tensors.size(); ++j) {
      items.push_back(
          {"group" + std::to_string(i) + "." + std::to_string(j), detail::describe(tensors[j])});
    }
  }
  detail::require_agreement("kolo.optimizer_state", "The optimizers", items);
}

std::string group_key(std::size_t group) { return "options" + std::to_string(group); }

// `Optimizer::load` brings the options in LibTorch 2, but not in 1.13: they travel beside its
// archive.
std::string save(const Optimizer& optimizer) {
  OutputArchive archive;
  OutputArchive state(archive.compilation_unit());
  optimizer.save(state);
  archive.write("optimizer", state);
  const auto& groups = optimizer.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    OutputArchive options(archive.compilation_unit());
    groups[i].options().serialize(options);
    archive.write(group_key(i), options);
  }
  std::ostringstream stream;
  archive.save_to(stream);
  return stream.str();
}

void load(Optimizer& optimizer, const std::string& bytes) {
  std::istringstream stream(bytes);
  InputArchive archive;
  archive.load_from(stream);
  InputArchive state;
  archive.read("optimizer", state);
  optimizer.state().clear();  // loading only adds
  optimizer.load(state);
  auto& groups = optimizer.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    InputArchive options;
    archive.read(group_key(i), options);
    groups[i].options().serialize(options);
  }
}

// Runs `action`; if it failed on any rank, every rank throws.
template <typename Action>
void on_every_rank(const std::string& what, const Action& action) {
  std::string error;
  try {
    action();
  } catch (const std::exception& exception) {
    error = exception.what();
  }
  const std::vector<int> failed =
      detail::ranks_that(!error.empty(), "kolo.optimizer_state." + what);
  if (failed.empty()) return;
  RankSet ranks;
  for (const int rank : failed) ranks.insert(RankSet::of(rank));
  throw Error("broadcast_optimizer_state: to " + what + " the optimizer failed on ranks " +
                  to_string(ranks) + (error.empty() ? "" : ": " + error),
              {}, failed);
}

}  // namespace

void broadcast_optimizer_state(Optimizer& optimizer, int root) {
  if (root < 0 || root >= size()) {
    throw InvalidArgument("broadcast_optimizer_state: there is no rank " + std::to_string(root));
  }
  require_same_structure(optimizer);
  std::string bytes;
  on_every_rank("save", [&] {
    if (rank() == root) bytes = save(optimizer);
  });
  broadcast(bytes, root, {.name = "kolo.optimizer_state.bytes"});
  on_every_rank("load", [&] {
    if (rank() != root) load(optimizer, bytes);
  });
}

}  // namespace kolo

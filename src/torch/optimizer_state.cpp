// Every rank's optimizer starts from the same state and options.
#include "kolo/torch/state.hpp"

#include <c10/util/Type.h>
#include <torch/serialize/archive.h>

#include <sstream>
#include <typeinfo>

#include "kolo/session.hpp"
#include "torch/tensor_view.hpp"
#include "training/agreement.hpp"

namespace kolo {
namespace {

using ::torch::optim::Optimizer;
using ::torch::serialize::InputArchive;
using ::torch::serialize::OutputArchive;

void require_same_structure(const Optimizer& optimizer, const ProcessSet& set) {
  std::vector<detail::Item> items{{"class", c10::demangle(typeid(optimizer).name())}};
  const auto& groups = optimizer.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto& tensors = groups[i].params();
    for (std::size_t j = 0; j < tensors.size(); ++j) {
      items.push_back(
          {"group" + std::to_string(i) + "." + std::to_string(j), detail::describe(tensors[j])});
    }
  }
  detail::require_agreement("kolo.optimizer_state", "The optimizers", items, set);
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

}  // namespace

void broadcast_optimizer_state(Optimizer& optimizer, int root, const ProcessSet& set) {
  const std::string function = "broadcast_optimizer_state";
  detail::require_root(function, root, set);
  require_same_structure(optimizer, set);
  std::string bytes;
  const auto save_here = [&] {
    if (rank() == root) bytes = save(optimizer);
  };
  detail::require_success(function, "save", detail::failure_of(save_here), set);
  broadcast(bytes, root, {.name = "kolo.optimizer_state.bytes", .process_set = set});
  const auto load_here = [&] {
    if (rank() != root) load(optimizer, bytes);
  };
  detail::require_success(function, "load", detail::failure_of(load_here), set);
}

}  // namespace kolo

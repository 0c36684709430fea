// Whatever LibTorch can save, from one rank to all.
#include <sstream>

#include "kolo/session.hpp"
#include "kolo/torch/state.hpp"
#include "training/agreement.hpp"

namespace kolo::detail {

void broadcast_saved(const std::function<void(std::ostream&)>& save,
                     const std::function<void(std::istream&)>& load, int root,
                     const BroadcastOptions& options) {
  const std::string function = "broadcast_archive";
  const ProcessSet& set = options.process_set;
  require_root(function, root, set);
  std::string bytes;
  const auto save_here = [&] {
    if (rank() != root) return;
    std::ostringstream stream;
    save(stream);
    bytes = stream.str();
  };
  require_success(function, "save", failure_of(save_here), set);
  broadcast(bytes, root, options);
  const auto load_here = [&] {
    if (rank() == root) return;
    std::istringstream stream(bytes);
    load(stream);
  };
  require_success(function, "load", failure_of(load_here), set);
}

}  // namespace kolo::detail

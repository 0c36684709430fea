#include "kolo/collectives.hpp"
#include "kolo/optimizer.hpp"
#include "training/named_tensors.hpp"

namespace kolo {

void broadcast_parameters(const std::vector<NamedTensor>& parameters, int root,
                          const ProcessSet& set) {
  const std::string operation = "kolo.broadcast_parameters";
  const std::vector<detail::Item> items = detail::items_of(parameters, "broadcast_parameters");
  detail::require_root("broadcast_parameters", root, set);
  detail::require_agreement(operation, "The parameters", items, set);
  std::vector<Future<void>> futures;
  for (const auto& [name, tensor] : parameters)
    futures.push_back(
        broadcast_async(tensor, root, {.name = operation + '.' + name, .process_set = set}));
  for (Future<void>& future : futures) future.get();
}

}  // namespace kolo

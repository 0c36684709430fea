#include "diagnostics/event.hpp"

namespace kolo::diagnostics {

std::string_view to_string(EventKind kind) {
  switch (kind) {
    case EventKind::submitted: return "submitted";
    case EventKind::started: return "started";
    case EventKind::packing: return "packing";
    case EventKind::reducing: return "reducing";
    case EventKind::unpacking: return "unpacking";
    case EventKind::finished: return "finished";
    case EventKind::failed: return "failed";
    case EventKind::plan_begun: return "plan begun";
    case EventKind::plan_ended: return "plan ended";
    case EventKind::leaving: return "leaving";
    case EventKind::peer_left: return "peer left";
    case EventKind::stall: return "stall";
    case EventKind::fault: return "fault";
  }
  return "?";
}

}  // namespace kolo::diagnostics

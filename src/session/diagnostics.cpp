// The public face of src/diagnostics: kolo/diagnostics.hpp.
#include "kolo/diagnostics.hpp"

#include <memory>
#include <utility>

#include "diagnostics/timeline.hpp"
#include "kolo/error.hpp"
#include "session/current.hpp"

namespace kolo {

Statistics statistics() { return session::current_engine()->statistics(); }

void start_timeline(const std::string& path) {
  const std::shared_ptr<session::Engine> engine = session::current_engine();
  const std::string own = diagnostics::path_of_rank(path, engine->topology().rank);
  if (!own.empty())
    engine->start_timeline(std::make_shared<diagnostics::Timeline>(own, engine->topology().rank));
}

void stop_timeline() { session::current_engine()->stop_timeline(); }

std::string write_flight_record(const std::string& path) {
  return session::current_engine()->write_flight_record(path);
}

}  // namespace kolo

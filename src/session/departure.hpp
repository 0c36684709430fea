// Ends of the process that run no destructor still tell the other ranks.
#pragma once

namespace kolo::session {

/// Installs, once, a chained terminate handler that announces the departure of this rank, and an
/// exit handler that ends a session still open when `exit` is called. MPI must have been started.
void announce_departures();

}  // namespace kolo::session

// SPDX-License-Identifier: Apache-2.0
// A library with wrong exports, for a test of exported_symbols.sh: internal names, a name that no
// public header has, and a name of another library.
namespace kolo {

void allreduce();
void allreduce() {}
void not_in_any_header();
void not_in_any_header() {}

namespace internal {

void not_marked();
void not_marked() {}

namespace session {

void leak();
void leak() {}

}  // namespace session

}  // namespace internal

}  // namespace kolo

namespace fmt {

void leak();
void leak() {}

}  // namespace fmt

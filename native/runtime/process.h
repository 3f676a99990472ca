// Which process this is. One that was forked has its parent's memory and none of its threads, so
// that nobody may wait for them.
#pragma once

#ifndef _WIN32
#include <unistd.h>
#endif

namespace satchel {

#ifdef _WIN32
inline int this_process() { return 1; }  // there is no fork
#else
inline int this_process() { return static_cast<int>(getpid()); }
#endif

}  // namespace satchel

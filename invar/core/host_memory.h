// How much of the machine's memory this process holds.
#pragma once

#include <cstdint>

namespace invar {

// Resident bytes, as top and ps show them; 0 where the system does not tell.
std::int64_t host_memory_bytes();

}  // namespace invar

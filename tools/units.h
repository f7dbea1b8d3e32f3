#pragma once

namespace hadal {

inline constexpr double kGib = 1 << 30;  // bytes

}  // namespace hadal

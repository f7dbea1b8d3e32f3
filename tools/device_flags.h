#pragma once

#include "launch/device_choice.h"
#include "tools/command_line.h"

namespace hadal {

void AddDeviceFlags(Command command, DeviceRequest& request);

}  // namespace hadal

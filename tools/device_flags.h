#pragma once

#include "launch/device_choice.h"
#include "tools/command_line.h"

namespace hadal {

// Adds --device to `command`, which sets request.kind; `request` must outlive CommandLine::Run.
void AddDeviceFlags(Command command, DeviceRequest& request);

}  // namespace hadal

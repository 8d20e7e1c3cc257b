/* monitor.h: MONITOR: a client receives every command that the server executes. */
#pragma once
#include "server/command/command.h"
/* Shows a call of a command with CMD_SKIP_MONITOR, before it runs: scripts, whose commands follow it. */
void monitor_show(const struct call *call);

"""The runtime: log, driver, loop, gate, worlds, tools."""

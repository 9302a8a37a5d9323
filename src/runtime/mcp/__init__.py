"""Tools of MCP servers: accepted definitions, and the connection of a run to a server."""

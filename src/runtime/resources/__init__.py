"""URLs, paths, networks and redirects, read once and strictly."""

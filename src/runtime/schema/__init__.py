"""JSON Schemas: validation, and the places of resources."""

"""What a caller may act for: workspaces, projects and their members, kept in Redis or in a file."""

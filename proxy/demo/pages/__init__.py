"""The pages that people see, as functions that return HTML. No script, nothing from elsewhere, light and dark."""

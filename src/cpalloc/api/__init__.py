"""The HTTP service; ``cpalloc.api.app.create_app`` builds it."""

"""The console: pages for people, rendered here and handed out by `app.routes.console`."""

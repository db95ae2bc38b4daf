"""vqueue's front office: what the API and the dispatcher run. No torch here."""

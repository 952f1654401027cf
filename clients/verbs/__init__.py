"""One file a verb of digenctl, each with a `command`; imported when the verb is asked for (`clients.main.VERBS`)."""

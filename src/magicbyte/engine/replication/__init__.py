"""Decisions about replicas and the controller, as pure code: requests and broker states in, decisions out."""

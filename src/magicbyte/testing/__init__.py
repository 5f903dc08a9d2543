"""What tests import, ours and users': the simulated world."""

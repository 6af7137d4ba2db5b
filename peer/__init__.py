"""Who may reach this machine, and how: settings, composition, the door and the command line."""

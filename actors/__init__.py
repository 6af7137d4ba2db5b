"""What happens on this machine: messages, the log, folds, rules, and one module per kind of actor."""
